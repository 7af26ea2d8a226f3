//! An Ethernet switch.

use std::collections::HashMap;

use mpxdp_proto::wire::MacAddress;

/// The most addresses a switch learns; when there are more, it starts anew.
const MAX_LEARNT: usize = 4096;

/// A switch that learns where addresses are.
#[derive(Debug, Default)]
pub(super) struct Switch {
    ports: Vec<u16>,
    learnt: HashMap<MacAddress, u16>,
}

impl Switch {
    pub(super) fn add_port(&mut self, port: u16) {
        self.ports.push(port);
    }

    /// The ports to which a frame that came in at `from` goes.
    pub(super) fn forward(&mut self, from: u16, frame: &[u8]) -> Vec<u16> {
        let Some(&[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5]) = frame.first_chunk() else {
            return Vec::new();
        };
        let destination = MacAddress([d0, d1, d2, d3, d4, d5]);
        let source = MacAddress([s0, s1, s2, s3, s4, s5]);
        if !source.is_group() {
            if self.learnt.len() >= MAX_LEARNT && !self.learnt.contains_key(&source) {
                self.learnt.clear();
            }
            self.learnt.insert(source, from);
        }
        match self.learnt.get(&destination) {
            Some(&port) if !destination.is_group() => {
                if port == from {
                    Vec::new()
                } else {
                    vec![port]
                }
            }
            _ => self.ports.iter().copied().filter(|&port| port != from).collect(),
        }
    }
}
