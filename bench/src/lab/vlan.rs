//! Tagged links: with the kernel's VLAN interfaces where it has them, else with two traffic control
//! programs at each end that put the tag on what leaves and take it off what arrives. The frames
//! on the wire are the same.

use super::tool::{run, within};
use crate::error::{Context, Error, Result};
use crate::sys::{Hook, Instruction, attach_classifier, load_classifier};

/// The name of the VLAN interface on an interface.
fn child(interface: &str, id: u16) -> String {
    format!("{interface}.{id}")
}

/// The interface that holds the addresses: the VLAN interface if there is one.
pub(super) fn holder(namespace: &str, interface: &str, id: u16) -> String {
    let child = child(interface, id);
    match run(&["ip", "-n", namespace, "link", "show", "dev", &child]) {
        Ok(_) => child,
        Err(_) => interface.to_owned(),
    }
}

/// Makes all frames of an interface carry the tag.
pub(super) fn add(namespace: &str, interface: &str, id: u16) -> Result<()> {
    let (child, text) = (child(interface, id), id.to_string());
    let add = ["ip", "-n", namespace, "link", "add", "link", interface];
    let kind = ["name", &child, "type", "vlan", "id", &text];
    match run(&[&add[..], &kind[..]].concat()) {
        Ok(_) => run(&["ip", "-n", namespace, "link", "set", &child, "up"]).map(|_| ()),
        Err(refused) => within(namespace, || tag_by_program(interface, id))?.map_err(|error| {
            Error::Failed(format!("no VLAN on {interface}: {refused}; and {error}"))
        }),
    }
}

fn tag_by_program(interface: &str, id: u16) -> Result<()> {
    let index =
        nix::net::if_::if_nametoindex(interface).context(|| format!("no interface {interface}"))?;
    for (hook, name, program) in
        [(Hook::Egress, "lab_vlan_push", push(id)), (Hook::Ingress, "lab_vlan_pop", pop(id))]
    {
        use std::os::fd::AsFd;
        let loaded = load_classifier(name, &program).context(|| format!("cannot load {name}"))?;
        attach_classifier(index, hook, loaded.as_fd())
            .context(|| format!("cannot attach {name}"))?;
    }
    Ok(())
}

// Operations of the BPF machine, all on 64 bits but the load.
const MOVE_CONSTANT: u8 = 0xb7;
const AND_CONSTANT: u8 = 0x57;
const LOAD_WORD: u8 = 0x61;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_NOT_EQUAL: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

// Helper functions.
const SKB_VLAN_PUSH: i32 = 18;
const SKB_VLAN_POP: i32 = 19;

// Offsets in the program's view of a packet, `struct __sk_buff`.
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;

// Verdicts.
const PASS: i32 = 0;
const DROP: i32 = 2;

const fn op(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: to | from << 4, offset, immediate }
}

/// Puts the tag on a frame; a frame that cannot take it is dropped rather than sent without.
fn push(id: u16) -> Vec<Instruction> {
    let protocol = i32::from(0x8100_u16.to_be());
    vec![
        op(MOVE_CONSTANT, 2, 0, 0, protocol),
        op(MOVE_CONSTANT, 3, 0, 0, id.into()),
        op(CALL, 0, 0, 0, SKB_VLAN_PUSH),
        op(JUMP_EQUAL, 0, 0, 2, 0),
        op(MOVE_CONSTANT, 0, 0, 0, DROP),
        op(EXIT, 0, 0, 0, 0),
        op(MOVE_CONSTANT, 0, 0, 0, PASS),
        op(EXIT, 0, 0, 0, 0),
    ]
}

/// Takes the tag off a frame; frames without it or with another one are dropped, as a VLAN
/// interface would not see them.
fn pop(id: u16) -> Vec<Instruction> {
    vec![
        op(LOAD_WORD, 2, 1, VLAN_PRESENT, 0),
        op(JUMP_EQUAL, 2, 0, 6, 0),
        op(LOAD_WORD, 2, 1, VLAN_TCI, 0),
        op(AND_CONSTANT, 2, 0, 0, 0xfff),
        op(JUMP_NOT_EQUAL, 2, 0, 3, id.into()),
        op(CALL, 0, 0, 0, SKB_VLAN_POP),
        op(MOVE_CONSTANT, 0, 0, 0, PASS),
        op(EXIT, 0, 0, 0, 0),
        op(MOVE_CONSTANT, 0, 0, 0, DROP),
        op(EXIT, 0, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jumps are relative to the next instruction and must land inside the program.
    #[test]
    fn jumps_land_where_they_should() {
        let pop = pop(7);
        let target = |at: usize| at + 1 + usize::try_from(pop[at].offset).expect("forward");
        for at in [1, 4] {
            assert_eq!(pop[target(at)].code, MOVE_CONSTANT);
            assert_eq!(pop[target(at)].immediate, DROP);
        }
        let push = push(7);
        assert_eq!(push[3 + 1 + 2].immediate, PASS);
    }
}
