// A client on a thread of its own, at the far end of a cable in memory. It is included by tests
// and by the examples in the documentation.

mod peer {
    use std::sync::Arc;
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    use mpxdp::port::{MemoryPort, Port, receive_packets, send_packet};
    use mpxdp_sim::{Content, Sender, SenderOptions};

    /// A client that sends `text` from 10.0.0.1 to 10.0.0.2, port 5001.
    #[allow(dead_code, reason = "not every includer needs it")]
    pub(crate) fn says(text: &str) -> SenderOptions {
        let content = Content::Bytes(Arc::from(text.as_bytes()));
        let local = "10.0.0.1:40000".parse().expect("an address");
        let remote = "10.0.0.2:5001".parse().expect("an address");
        SenderOptions::new(local, remote, content)
    }

    /// Runs clients until all have ended, or for half a minute.
    pub(crate) fn run(
        mut port: MemoryPort,
        clients: Vec<SenderOptions>,
    ) -> JoinHandle<Vec<Sender>> {
        std::thread::spawn(move || {
            let start = Instant::now();
            let mut senders: Vec<Sender> = clients.into_iter().map(Sender::new).collect();
            let mut buf = vec![0; 1 << 17];
            let mut unsent: Option<usize> = None;
            while start.elapsed() < Duration::from_secs(30) {
                let now = mpxdp_proto::time::Instant(start.elapsed().as_nanos() as u64);
                let mut idle = true;
                for sender in &mut senders {
                    sender.on_timeout(now);
                    while let Some(len) = unsent.take().or_else(|| sender.poll_frame(now, &mut buf))
                    {
                        idle = false;
                        if !send_packet(&mut port, &buf[..len]) {
                            unsent = Some(len);
                            break;
                        }
                    }
                }
                port.flush().expect("memory does not fail");
                receive_packets(&mut port, 256, |packet| {
                    idle = false;
                    senders.iter_mut().for_each(|sender| sender.on_frame(now, packet));
                });
                if idle && senders.iter().all(|s| s.is_done() || s.failure().is_some()) {
                    break;
                }
                if idle {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            senders
        })
    }
}
