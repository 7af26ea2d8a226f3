//! An idle engine. It is alone in its file: what is measured is the CPU time of the process.

#![expect(clippy::unwrap_used, reason = "a helper of a test")]

use std::time::{Duration, Instant};

use mpxdp::port::{MemoryOptions, MemoryPort};
use mpxdp::{Engine, PortNic};
use nix::sys::resource::{UsageWho, getrusage};

fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let time =
        |t: nix::sys::time::TimeVal| Duration::new(t.tv_sec() as u64, t.tv_usec() as u32 * 1000);
    time(usage.user_time()) + time(usage.system_time())
}

#[test]
fn an_idle_engine_uses_less_than_a_fiftieth_of_a_cpu() {
    let (near, _far) = MemoryPort::pair(MemoryOptions::default());
    let nic = PortNic::new("mem0", [near]).addresses(["10.0.0.2".parse().unwrap()]);
    let engine = Engine::builder().ports(nic).start().unwrap();
    let _listener = engine.listen("10.0.0.2:5001".parse().unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let (before, start) = (cpu_time(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let (used, passed) = (cpu_time() - before, start.elapsed());
    assert!(used * 50 < passed, "{used:?} in {passed:?}");
}
