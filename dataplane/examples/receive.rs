//! Accepts connections on a NIC and says what came: `receive NIC ADDRESS:PORT [CONNECTIONS]`.

use std::error::Error;
use std::io::BufRead;

use mpxdp::{Engine, NicConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nic, at, count @ ..] = arguments.as_slice() else {
        return Err("usage: receive NIC ADDRESS:PORT [CONNECTIONS]".into());
    };
    let count: usize = count.first().map_or(Ok(1), |n| n.parse())?;

    let engine = Engine::builder().nic(nic.parse::<NicConfig>()?).start()?;
    let listener = engine.listen(at.parse()?)?;
    for nic in engine.nics() {
        println!("{}: {} mode, zero copy: {}", nic.name, nic.mode, nic.zero_copy);
    }
    for _ in 0..count {
        let mut stream = listener.accept()?;
        let mut hash = 0_u64;
        loop {
            // Everything that has come in order, where it lies in the receive ring.
            let bytes = stream.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            hash = bytes.iter().fold(hash, |hash, &byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
            let n = bytes.len();
            stream.consume(n);
        }
        let statistics = stream.statistics();
        println!(
            "{} from {}: {} bytes, FNV {hash:016x}, closed by {}",
            if statistics.mptcp { "MPTCP" } else { "TCP" },
            stream.peer_addr(),
            statistics.bytes,
            statistics.closed.map_or("nothing", mpxdp::Closed::name),
        );
    }
    drop(listener);
    println!("{:#?}", engine.workers());
    println!("{:#?}", engine.ports());
    engine.shutdown(std::time::Duration::from_secs(1))?;
    Ok(())
}
