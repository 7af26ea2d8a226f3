//! Other traffic on the NIC goes on untouched.

use mpxdp_bench::lab::{Family, Lab, Running, Side};
use mpxdp_bench::traffic::receiver;

use super::harness::{BENCH, Rig, finish};

/// The port of a kernel TCP server next to ours.
const OTHER_PORT: u16 = 6000;

fn goes_on(builder: mpxdp_bench::lab::Builder) {
    let Some(rig) = Rig::new(builder) else { return };
    for family in [Family::V4, Family::V6] {
        let recv = rig.recv(family, &["--output", "null"]);
        let stream = rig.sender(family, &["--seconds", "4"]);
        let address = rig.address(family).to_string();

        // Small, a whole frame, and one that is fragmented; during the stream, so some patience.
        let frame = rig.lab.spec().mtu.min(9000) - 48;
        for size in [56, frame, 3 * frame] {
            let size = size.to_string();
            let ping = ["ping", "-c", "3", "-i", "0.05", "-W", "10", "-s", &size, &address];
            rig.tool(Side::Sender, &ping);
        }

        let other = std::net::SocketAddr::from((rig.address(family), OTHER_PORT));
        for (kind, protocol) in [("kernel-tcp", "tcp"), ("kernel-mptcp", "mptcp")] {
            let mut command = rig.lab.command(Side::Receiver, BENCH);
            let at = other.to_string();
            command.args(["receiver", "--hash", "--kind", kind, "--listen", &at]);
            let server = Running::start("kernel server", &mut command, &[]).expect("it starts");
            let arguments = ["--protocol", protocol, "--bytes", "5000000", "--retry", "10"];
            let client = rig.sender_to(other, &[arguments.as_slice(), &["--hash"]].concat());
            let client = finish(client);
            assert!(client.status.success(), "{}", client.stderr);
            let sent: mpxdp_bench::traffic::sender::Report = client.json().expect("a report");
            let got: receiver::Report = finish(server).json().expect("a report");
            assert_eq!(got.connections[0].sha256, sent.connections[0].sha256);
        }

        // Neighbour discovery and ARP from nothing.
        for side in Side::BOTH {
            rig.tool(side, &["ip", "neigh", "flush", "all"]);
        }
        for (side, to) in [(Side::Sender, Side::Receiver), (Side::Receiver, Side::Sender)] {
            let address = rig.lab.address(to, 0, family).to_string();
            rig.tool(side, &["ping", "-c", "2", "-i", "0.05", "-W", "10", &address]);
        }

        let stream = finish(stream);
        assert!(stream.status.success(), "{}", String::from_utf8_lossy(&stream.stdout));
        let received = recv.stop();
        received.assert_code(0);
        received.only().assert_complete();
        received.assert_nothing_left();
    }
}

#[test]
fn ping_kernel_servers_and_neighbour_discovery_go_on() {
    goes_on(Lab::builder().queues(2));
}

#[test]
fn they_go_on_at_a_large_mtu_and_with_a_vlan() {
    goes_on(Lab::builder().mtu(9000).vlan(Some(5)));
}
