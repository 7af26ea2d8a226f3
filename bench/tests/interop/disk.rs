//! A full disk under `--output`.

use mpxdp_bench::lab::{Family, Lab, Running, Side};

use super::harness::{Recv, Rig, finish, mpxdp};

/// The connection is reset: the sender must not take for stored what is not.
#[test]
fn a_full_disk_is_an_error_for_both_ends() {
    for (name, protocol) in [("out", "mptcp"), ("in/", "mptcp"), ("out", "tcp")] {
        let Some(rig) = Rig::new(Lab::builder().mtu(9000)) else { return };
        let small = rig.path("small");
        std::fs::create_dir(&small).expect("a folder");
        // `ip netns exec` has mounts of its own, so nobody else sees this one, and it goes with the
        // process.
        let report = rig.path("report.json");
        let script = format!(
            "mount -t tmpfs -o size=8m tmpfs '{small}' && exec '{mpxdp}' recv --nic rcv0 \
             --listen {at} --connections 1 --output '{small}/{name}' --report '{report}'",
            small = small.display(),
            mpxdp = mpxdp().display(),
            at = rig.at(Family::V4),
            report = report.display(),
        );
        let mut command = rig.lab.command(Side::Receiver, "sh");
        command.args(["-c", &script]);
        let running = Running::start("mpxdp recv", &mut command, &[]).expect("it starts");
        let recv = Recv::listening(running, report);
        // Less than what fits into ring, window and buffers beyond the disk would not show it.
        let sent = rig.send(Family::V4, &["--protocol", protocol, "--bytes", "100000000"]);
        let received = recv.finish();
        received.assert_code(1);
        let connection = received.only();
        let error = connection.error.as_deref().unwrap_or_default();
        assert!(error.to_lowercase().contains("space"), "{name}: {connection:#?}");
        assert!(received.ended.stderr.to_lowercase().contains("space"), "{name}");
        assert!(sent.connections[0].error.is_some(), "{name}: {sent:#?}");
        received.assert_frames_home();

        // Even if all of it fitted into the ring: the end is not acknowledged before it is stored.
        drop(received);
        rig.assert_detached();
    }
}

/// What is smaller than the ring is acknowledged by TCP before it is written; the sender must still
/// not see the connection end well.
#[test]
fn a_full_disk_is_seen_even_if_all_fits_into_the_ring() {
    let Some(rig) = Rig::new(Lab::builder()) else { return };
    let small = rig.path("small");
    std::fs::create_dir(&small).expect("a folder");
    let report = rig.path("report.json");
    let script = format!(
        "mount -t tmpfs -o size=64k tmpfs '{small}' && exec '{mpxdp}' recv --nic rcv0 \
         --listen {at} --connections 1 --output '{small}/out' --report '{report}'",
        small = small.display(),
        mpxdp = mpxdp().display(),
        at = rig.at(Family::V4),
        report = report.display(),
    );
    let mut command = rig.lab.command(Side::Receiver, "sh");
    command.args(["-c", &script]);
    let running = Running::start("mpxdp recv", &mut command, &[]).expect("it starts");
    let recv = Recv::listening(running, report);
    let sent = finish(rig.sender(Family::V4, &["--bytes", "200000"]));
    let received = recv.finish();
    received.assert_code(1);
    assert!(received.only().error.is_some());
    assert!(!sent.status.success(), "{}", String::from_utf8_lossy(&sent.stdout));
}
