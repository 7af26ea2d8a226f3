//! The committed objects: built from the sources beside them, clean, and fit for libbpf too.

mod common;
#[path = "../src/bin/rebuild-object/record.rs"]
mod record;

use std::path::Path;

use libbpf_rs::{MapCore, ObjectBuilder};
use mpxdp_ebpf::{FRONT_OBJECT, MAX_QUEUES, STEER_OBJECT, Verdict};

use crate::common::privileged;
use crate::record::{Record, digest_of_sources};

fn contains(object: &[u8], text: &str) -> bool {
    object.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn the_objects_are_of_the_sources_beside_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recorded = Record::read(&root.join("prebuilt")).unwrap();
    assert_eq!(
        recorded.sources,
        digest_of_sources(&root.join("bpf")).unwrap(),
        "bpf/ changed after prebuilt/ was built; run `cargo run -p mpxdp-ebpf --features rebuild \
         --bin rebuild-object`"
    );
    assert!(recorded.clang.split('.').next().unwrap().parse::<u32>().is_ok());
}

#[test]
fn the_objects_hold_type_information_and_nothing_of_the_machine_that_built_them() {
    for object in [STEER_OBJECT, FRONT_OBJECT] {
        assert_eq!(object.as_ptr().addr() % 8, 0, "an ELF file wants this alignment");
        for wanted in [".BTF", ".BTF.ext", "xdp.frags", "Dual BSD/GPL", "./bpf/"] {
            assert!(contains(object, wanted), "no {wanted}");
        }
        for unwanted in [".debug_info", env!("CARGO_MANIFEST_DIR")] {
            assert!(!contains(object, unwanted), "{unwanted}");
        }
        // Names of files are relative to the crate, wherever it lay.
        let strings = object.split(|&byte| byte == 0).filter_map(|text| str::from_utf8(text).ok());
        let absolute = |text: &&str| text.starts_with('/') && text[1..].contains('/');
        assert_eq!(strings.clone().find(absolute), None);
        assert!(strings.clone().any(|text| text.starts_with("./bpf/")), "names of files are there");
    }
}

#[test]
fn the_loader_and_the_program_agree_on_numbers() {
    let header = include_str!("../bpf/verdict.h");
    let body = header.split_once("enum verdict {").unwrap().1.split_once("};").unwrap().0;
    let in_c: Vec<String> = body
        .lines()
        .filter_map(|line| line.trim().strip_prefix("VERDICT_")?.split_once(','))
        .map(|(name, _)| name.to_lowercase())
        .filter(|name| name != "count")
        .collect();
    let in_rust: Vec<&str> = Verdict::ALL.iter().map(|verdict| verdict.name()).collect();
    assert_eq!(in_c, in_rust);
    let maps = include_str!("../bpf/maps.h");
    assert!(maps.contains(&format!("#define MAX_QUEUES {MAX_QUEUES}\n")));
}

#[test]
fn libbpf_loads_the_objects() {
    if !privileged("libbpf_loads_the_objects") {
        return;
    }
    for (object, name, maps) in [
        (
            STEER_OBJECT,
            "mpxdp_steer",
            &["counters", "flows", "listeners", "local_addresses", "ports", "sockets"][..],
        ),
        (FRONT_OBJECT, "mpxdp_front", &[]),
    ] {
        let open = ObjectBuilder::default().open_memory(object).unwrap();
        let loaded = open.load().unwrap();
        let programs: Vec<_> = loaded.progs().map(|program| program.name().to_owned()).collect();
        assert_eq!(programs, [name]);
        let mut found: Vec<_> =
            loaded.maps().map(|map| map.name().to_string_lossy().into_owned()).collect();
        found.sort();
        assert_eq!(found, maps);
    }
}
