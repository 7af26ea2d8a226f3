//! A reader that stops and starts, while several subflows are under way.

use std::fs::File;
use std::io::{self, Read};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use mpxdp_bench::lab::{Family, Lab, Running};

use super::harness::{LIMIT, Recv, assert_pattern, finish};
use super::net::{MIB, Net};

/// How often the reader stops.
const STOPS: u64 = 3;

/// What Linux may send again by itself while data flows, from the first stop on. On a busy machine, where
/// an answer may be late by 20 ms, it gives what it waits for to a subflow that has nothing else to do.
/// Seen were 0 to 3 (twelve runs, kernel 6.18, two CPUs and eight compilers beside it); before the first
/// stop, where slow start overruns the queue of a veth and TCP loses segments, up to 9 more. With the
/// kernel's own receiver and a reader that stops likewise it was 0 to 36 in all, and some of them while
/// the window was closed (22 runs).
const FLOWING: u64 = 4 * STOPS;

/// Waits until the client sends nothing any more: all windows are full.
fn wait_until_still(net: &Net) {
    let mut before = (0, Instant::now());
    let deadline = Instant::now() + LIMIT;
    loop {
        let sent = net.counter("TcpOutSegs");
        if sent != before.0 {
            before = (sent, Instant::now());
        } else if before.1.elapsed() > Duration::from_millis(60) {
            // Less than the time between two probes of a window, or to sending again: 200 ms.
            return;
        }
        assert!(Instant::now() < deadline, "the client never stopped to send");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The window closes and opens again, and each subflow goes on at once. While it is closed nothing is left
/// with a subflow that cannot send it, since Linux would put a copy into the queue of another after
/// 200 ms; and what was sent is acknowledged at the data level without being asked for.
#[test]
fn a_reader_that_stops_makes_the_client_send_nothing_again() {
    const SIZE: u64 = 128 * MIB;
    for (family, subflows) in [(Family::V4, 2), (Family::V6, 4)] {
        let Some(net) = Net::new(Lab::builder(), 2, 1, &[]) else { return };
        net.endpoints(family, subflows);
        let report = net.rig.path("report.json");
        let mut command = net.rig.mpxdp(&["recv", "--output", "-", "--announce", "none"]);
        command.args(["--nic", &net.nic(0), "--nic", &net.nic(1), "--report"]).arg(&report);
        command.args(["--listen", &net.rig.at(family).to_string()]);
        let (mut reader, writer) = io::pipe().expect("a pipe");
        command.stdout(writer).stderr(Stdio::piped());
        let running = Running::start_with("mpxdp recv", &mut command, &[]).expect("it starts");
        // The command holds our end for writing, without which the pipe has no end.
        drop(command);
        let recv = Recv::listening(running, report);
        let sender = net.sender(family, SIZE, &[]);
        let path = net.rig.path("read");
        let mut file = File::create(&path).expect("a file");
        let again = || net.counter("MPTcpExtMPTCPRetrans");
        let mut at_first = 0;
        for stop in 0..STOPS {
            io::copy(&mut (&mut reader).take(24 * MIB), &mut file).expect("data");
            wait_until_still(&net);
            let before = again();
            at_first = if stop == 0 { before } else { at_first };
            thread::sleep(Duration::from_secs(1));
            assert_eq!(again(), before, "sent again while the reader stood still, stop {stop}");
        }
        io::copy(&mut reader, &mut file).expect("the rest");
        assert!(finish(sender).status.success());
        let received = recv.finish();
        received.assert_code(0);
        received.assert_frames_home();
        received.assert_owned();
        let connection = received.only();
        connection.assert_complete();
        assert_pattern(&path, SIZE);
        assert_eq!(connection.subflows.len(), subflows as usize, "{connection:#?}");
        let flowing = again() - at_first;
        assert!(flowing <= FLOWING, "{flowing} data-level retransmissions");
        // Nor did it take a right edge from what we said that we never told.
        let drops = received.report.workers.iter().filter_map(|one| one.drops.get("beyond_window"));
        assert_eq!(drops.sum::<u64>(), 0, "{:#?}", received.report.workers);
        // Linux takes a subflow for stale if its queue does not get shorter for so long, and for well
        // again when it does: none may stay behind.
        let stale = net.counter("MPTcpExtSubflowStale");
        assert_eq!(net.counter("MPTcpExtSubflowRecover"), stale);
        assert!(connection.subflows.iter().all(|one| one.bytes > MIB), "{connection:#?}");
    }
}
