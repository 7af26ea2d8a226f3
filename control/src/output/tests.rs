use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::failure::Kind;

fn peer() -> SocketAddr {
    "10.0.0.2:40112".parse().unwrap()
}

fn directory_spec(path: &Path) -> OutputSpec {
    format!("{}/", path.display()).parse().unwrap()
}

fn names_in(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_four_kinds_are_told_apart_by_their_text() {
    assert_eq!("null".parse(), Ok(OutputSpec::Null));
    assert_eq!("-".parse(), Ok(OutputSpec::Stdout));
    assert_eq!("./null".parse(), Ok(OutputSpec::File("./null".into())));
    assert_eq!("data".parse(), Ok(OutputSpec::File("data".into())));
    assert_eq!("data/".parse(), Ok(OutputSpec::Directory("data/".into())));
    assert!("".parse::<OutputSpec>().is_err());
}

#[test]
fn a_file_is_replaced_only_when_all_has_come() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("out");
    let old = b"from a former run, and longer";
    fs::write(&path, old).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let spec = OutputSpec::File(path.clone());

    // No connection came.
    let mut output = spec.open().unwrap();
    output.keep();
    drop(output);
    assert_eq!(
        (fs::read(&path).unwrap(), names_in(temp.path())),
        (old.to_vec(), vec!["out".into()])
    );

    // One came and broke: what it brought is there too.
    let mut output = spec.open().unwrap();
    let mut sink = output.sink(1, peer()).unwrap();
    sink.write(b"a part").unwrap();
    assert_eq!(sink.place(), Some(temp.path().join("out.part")));
    drop(sink);
    assert_eq!(fs::read(&path).unwrap(), old);
    assert_eq!(fs::read(temp.path().join("out.part")).unwrap(), b"a part");

    let mut output = spec.open().unwrap();
    let mut sink = output.sink(1, peer()).unwrap();
    sink.write(b"new ").unwrap();
    sink.write(b"bytes").unwrap();
    assert_eq!(fs::read(&path).unwrap(), old);
    assert_eq!(sink.finish().unwrap(), Some(path.clone()));
    assert_eq!(fs::read(&path).unwrap(), b"new bytes");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names_in(temp.path()), ["out"]);
}

#[test]
fn a_run_that_does_not_begin_leaves_nothing_behind() {
    let temp = tempfile::tempdir().unwrap();
    drop(OutputSpec::File(temp.path().join("file")).open().unwrap());
    drop(directory_spec(&temp.path().join("dir")).open().unwrap());
    assert_eq!(names_in(temp.path()), [""; 0]);
}

#[test]
fn a_connection_without_data_leaves_an_empty_file() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("out");
    let mut output = OutputSpec::File(path.clone()).open().unwrap();
    output.keep();
    output.sink(1, peer()).unwrap().finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn a_link_is_kept_and_what_it_points_to_is_made_or_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let (link, target) = (temp.path().join("link"), temp.path().join("target"));
    symlink("target", &link).unwrap();
    for content in [b"new", b"two"] {
        let mut output = OutputSpec::File(link.clone()).open().unwrap();
        let mut sink = output.sink(1, peer()).unwrap();
        sink.write(content).unwrap();
        sink.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), content);
        assert!(link.is_symlink());
    }
    symlink("loop", temp.path().join("loop")).unwrap();
    assert!(OutputSpec::File(temp.path().join("loop")).open().is_err());
}

#[test]
fn a_file_takes_one_connection() {
    let temp = tempfile::tempdir().unwrap();
    let mut output = OutputSpec::File(temp.path().join("out")).open().unwrap();
    output.keep();
    let _first = output.sink(1, peer()).unwrap();
    assert!(output.sink(2, peer()).is_err());
}

#[test]
fn a_directory_takes_a_file_for_each_connection_and_names_it_when_complete() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("in");
    let mut output = directory_spec(&path).open().unwrap();
    output.keep();
    let mut one = output.sink(1, peer()).unwrap();
    let mut two = output.sink(2, "[2001:db8::2]:9".parse().unwrap()).unwrap();
    one.write(b"one").unwrap();
    two.write(b"two").unwrap();
    assert_eq!(one.place(), Some(path.join("0001-10.0.0.2-40112.bin.part")));
    assert_eq!(one.finish().unwrap(), Some(path.join("0001-10.0.0.2-40112.bin")));
    drop(two);
    assert_eq!(
        names_in(&path),
        ["0001-10.0.0.2-40112.bin", "0002-2001_db8__2-9.bin.part"],
        "the second did not come to its end"
    );
    assert_eq!(fs::read(path.join("0001-10.0.0.2-40112.bin")).unwrap(), b"one");
}

#[test]
fn a_second_run_overwrites_no_file_of_the_first() {
    let temp = tempfile::tempdir().unwrap();
    for run in ["first", "second"] {
        let mut output = directory_spec(temp.path()).open().unwrap();
        output.keep();
        let mut sink = output.sink(1, peer()).unwrap();
        sink.write(run.as_bytes()).unwrap();
        sink.finish().unwrap();
    }
    assert_eq!(names_in(temp.path()), ["0001-10.0.0.2-40112.bin", "0002-10.0.0.2-40112.bin"]);
    assert_eq!(fs::read(temp.path().join("0001-10.0.0.2-40112.bin")).unwrap(), b"first");
}

#[test]
fn places_that_cannot_be_written_are_wrong_usage() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("file"), "").unwrap();
    let missing = temp.path().join("missing/out");
    for (spec, named) in [
        (OutputSpec::File(missing.clone()), "No such file or directory"),
        (directory_spec(&missing), "No such file or directory"),
        (directory_spec(&temp.path().join("file")), "Not a directory"),
        (OutputSpec::File(temp.path().into()), "is a directory; end it with /"),
    ] {
        let failure = spec.open().expect_err(&spec.to_string());
        assert_eq!(failure.kind(), Kind::Usage);
        assert!(failure.to_string().contains(named), "{failure}");
    }
}

#[test]
fn a_full_disk_is_an_error_of_the_write() {
    let mut output = OutputSpec::File("/dev/full".into()).open().unwrap();
    output.keep();
    let mut sink = output.sink(1, peer()).unwrap();
    let error = sink.write(b"x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
}

#[test]
fn null_takes_everything_and_names_no_place() {
    let mut sink = OutputSpec::Null.open().unwrap().sink(1, peer()).unwrap();
    sink.write(&[0; 100]).unwrap();
    assert_eq!(sink.place(), None);
    assert_eq!(sink.finish().unwrap(), None);
}
