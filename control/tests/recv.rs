//! `mpxdp recv` for real: on AF_XDP, with the kernel's MPTCP as the client. Needs root.

mod lab;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use serde_json::Value;

use self::lab::{Lab, NIC, RECEIVER};

/// Bytes without a period that a shifted or repeated piece could hide in.
fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn report(path: &std::path::Path) -> Value {
    let text = fs::read_to_string(path).expect("the report is there");
    serde_json::from_str(&text).expect("the report is JSON")
}

/// Runs it and expects a failure with this exit code and one line that has these words, and nothing
/// attached.
fn refused(lab: &Lab, arguments: &[&str], code: i32, words: &[&str]) {
    let output = lab.mpxdp(arguments).output().expect("ip runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{arguments:?}: \"{word}\" is not in: {stderr}");
    }
    assert!(!lab.has_program(), "{arguments:?} left a program attached");
}

#[test]
fn what_the_machine_is_not_ready_for_is_refused_before_anything_is_attached() {
    let Some(lab) = Lab::new() else { return };
    let local = format!("{RECEIVER}:5000");
    let recv = |more: &[&'static str]| -> Vec<String> {
        let given = ["recv", "--nic", NIC, "--listen", &local];
        given.iter().chain(more).map(|&s| s.to_owned()).collect()
    };
    let check = |arguments: Vec<String>, code, words: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        refused(&lab, &arguments, code, words);
    };
    let temp = tempfile::tempdir().unwrap();
    let output = temp.path().join("out");
    let output = output.to_str().unwrap();

    refused(
        &lab,
        &["recv", "--nic", NIC, "--listen", "10.1.2.3:5000", "--output", output],
        2,
        &["10.1.2.3", "not an address of rcv0", "ip addr"],
    );
    let queues = format!("{NIC}:queues=0-7");
    refused(
        &lab,
        &["recv", "--nic", &queues, "--listen", &local, "--output", output],
        2,
        &[NIC, "no receive queue 2", "0 to 1"],
    );
    check(recv(&["--mode", "zerocopy"]), 2, &[NIC, "zerocopy mode does not work here"]);

    let taken = lab.inside(true, || TcpListener::bind(&local)).unwrap();
    check(recv(&[]), 1, &[&local, "the port is taken", "ss -ltnp"]);
    drop(taken);

    lab.ip(&["link", "set", NIC, "down"]);
    check(recv(&[]), 1, &[NIC, "is down", "ip link set rcv0 up"]);

    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "no output is left behind");
}

#[test]
fn too_few_descriptors_are_named() {
    let Some(lab) = Lab::new() else { return };
    let listen = format!("{RECEIVER}:5000");
    let ip = lab.mpxdp(&["recv", "--nic", NIC, "--listen", &listen]);
    for limit in ["8", "24"] {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limit}:{limit}"));
        // ip netns exec NAME, which needs some of its own, and then mpxdp by way of prlimit.
        let mut arguments = ip.get_args();
        let mut inside = Command::new("ip");
        inside.args(arguments.by_ref().take(3)).arg(command.get_program());
        let output = inside.args(command.get_args()).args(arguments).output().expect("ip runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{limit}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{limit}: {stderr}");
        assert!(stderr.contains("RLIMIT_NOFILE"), "{limit}: {stderr}");
        assert!(!lab.has_program(), "{limit}");
    }
}

#[test]
fn packets_with_wrong_checksums_are_told_of_once() {
    let Some(lab) = Lab::new() else { return };
    let mut recv = lab.recv(5000, &[]);
    lab.ethtool(&["-K", "snd0", "tx", "on"]);
    let to = format!("{RECEIVER}:5000").parse().unwrap();
    lab.inside(false, || {
        let refused = TcpStream::connect_timeout(&to, Duration::from_millis(3500));
        assert!(refused.is_err(), "no packet of it has a right checksum");
    });
    recv.wait_for("tcp_checksum");
    recv.signal(Signal::SIGINT);
    let (status, _) = recv.end();
    assert!(status.success());
    let told = recv.lines.iter().filter(|line| line.contains("ethtool -K")).count();
    assert_eq!(told, 1, "{:#?}", recv.lines);
}

#[test]
fn an_address_of_one_link_is_listened_on_by_its_link() {
    let Some(lab) = Lab::new() else { return };
    lab.ip(&["addr", "add", "fe80::99/64", "dev", NIC, "nodad"]);
    let listen = format!("[fe80::99%{NIC}]:5000");
    let arguments = ["recv", "--nic", NIC, "--listen", &listen, "--connections", "1"];
    refused(&lab, &["recv", "--nic", NIC, "--listen", "[fe80::99]:5000"], 2, &["%eth0]:5000"]);
    refused(
        &lab,
        &["recv", "--nic", NIC, "--listen", "[fe80::99%lo]:5000"],
        2,
        &["that link", NIC],
    );
    let mut recv = lab.start(&arguments);
    lab.inside(false, || {
        let own = ["addr", "add", "fe80::98/64", "dev", "snd0", "nodad"];
        assert!(Command::new("ip").args(own).status().unwrap().success());
        let scope = nix::net::if_::if_nametoindex("snd0").unwrap();
        let at = std::net::SocketAddrV6::new("fe80::99".parse().unwrap(), 5000, 0, scope);
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(b"over the link").unwrap();
    });
    let (status, _) = recv.end();
    assert!(status.success(), "{:#?}", recv.lines);
    assert!(recv.lines.join(" ").contains("13 B"), "{:#?}", recv.lines);
}

#[test]
fn missing_capabilities_are_named() {
    let Some(lab) = Lab::new() else { return };
    let listen = format!("{RECEIVER}:5000");
    for (dropped, named) in [
        ("-all", "without CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON;"),
        ("-net_raw", "without CAP_NET_RAW;"),
        ("-bpf,-sys_admin", "without CAP_BPF;"),
    ] {
        let ip = lab.mpxdp(&["recv", "--nic", NIC, "--listen", &listen]);
        // ip netns exec NAME, and then mpxdp by way of setpriv.
        let mut arguments = ip.get_args();
        let mut command = Command::new("ip");
        command.args(arguments.by_ref().take(3));
        command.args(["setpriv", "--bounding-set", dropped, "--inh-caps", dropped]);
        let output = command.args(arguments).output().expect("setpriv is part of util-linux");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{dropped}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{dropped}: {stderr}");
        assert!(stderr.contains(named), "{dropped}: {stderr}");
        assert!(!lab.has_program(), "{dropped}");
    }
}

#[test]
fn a_file_arrives_exactly_and_the_report_says_how() {
    let Some(lab) = Lab::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let (output, json) = (temp.path().join("out"), temp.path().join("report.json"));
    let data = pattern(20_000_003);
    let mut recv =
        lab.recv(5000, &["--output", output.to_str().unwrap(), "--report", json.to_str().unwrap()]);
    assert!(lab.has_program());
    let mut client = lab.connect(5000);
    client.write_all(&data).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    // Our side is closed in turn once the file is stored.
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    let stored = fs::read(&output).unwrap();
    assert!(stored == data, "the file is another one: {} bytes", stored.len());
    let peer = client.local_addr().unwrap().to_string();
    drop(client);
    let (status, stdout) = recv.end();
    assert!(status.success(), "{:#?}", recv.lines);
    assert_eq!(stdout, b"");
    assert!(!lab.has_program());

    let report = report(&json);
    assert_eq!(report["ended"], "connections");
    let connection = &report["connections"][0];
    assert_eq!(connection["bytes"], data.len());
    assert_eq!(connection["mptcp"], true);
    assert_eq!(connection["fallback"], Value::Null);
    assert_eq!(connection["closed"], "data_fin");
    assert_eq!(connection["error"], Value::Null);
    assert_eq!(connection["remote"], peer);
    let subflow = &connection["subflows"][0];
    assert_eq!(subflow["nic"], NIC);
    assert_eq!(subflow["remote"], peer);
    // The kernel probes a closed window with a byte of old data under a new sequence number.
    assert!(subflow["bytes"].as_u64().unwrap() >= data.len() as u64, "{subflow}");
    let nic = &report["nics"][0];
    assert_eq!((&nic["name"], &nic["zero_copy"]), (&NIC.into(), &false.into()));
    assert_eq!(nic["queues"], serde_json::json!([0, 1]));
    assert!(report["workers"][0]["packets"].as_u64().unwrap() > 0);
    assert_eq!(report["workers"][0]["tables"]["half_open"], 0);
    for port in report["ports"].as_array().unwrap() {
        let frames = port["frames"].as_object().unwrap();
        let total = frames["total"].as_u64().unwrap();
        let sum: u64 = frames.values().map(|n| n.as_u64().unwrap()).sum();
        assert!(total > 0 && sum == 2 * total, "no frame is missing: {frames:?}");
    }
}

#[test]
fn a_file_of_options_is_enough() {
    let Some(lab) = Lab::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let config = temp.path().join("recv.toml");
    let text = format!(
        "nic = [\"{NIC}\"]\nlisten = \"{RECEIVER}:5000\"\nchecksums = \"on\"\nmode = \"copy\"\n\
         connections = 7\nreport = \"-\"\n"
    );
    fs::write(&config, text).unwrap();
    let mut recv = lab.start(&["recv", "--config", config.to_str().unwrap(), "--connections", "1"]);
    let mut client = lab.connect(5000);
    client.write_all(&pattern(300_000)).unwrap();
    drop(client);
    let (status, stdout) = recv.end();
    assert!(status.success(), "{:#?}", recv.lines);
    let report: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(report["mode"], "copy");
    let connection = &report["connections"][0];
    assert_eq!((&connection["bytes"], &connection["mptcp"]), (&300_000.into(), &true.into()));
    assert_eq!(connection["checksums"], true);
}

#[test]
fn standard_output_takes_the_data_of_one_connection() {
    let Some(lab) = Lab::new() else { return };
    let data = pattern(300_000);
    let mut recv = lab.recv(5000, &["--output", "-"]);
    let mut client = lab.connect(5000);
    client.write_all(&data).unwrap();
    drop(client);
    let (status, stdout) = recv.end();
    assert!(status.success(), "{:#?}", recv.lines);
    assert!(stdout == data, "{} bytes came", stdout.len());
}

#[test]
fn a_directory_takes_a_file_for_each_of_several_connections() {
    let Some(lab) = Lab::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let directory = format!("{}/in/", temp.path().display());
    let mut recv = lab.recv(5000, &["--output", &directory, "--connections", "3", "--report", "-"]);
    // All are open at the same time, and the last to come is the first to end.
    let mut clients: Vec<_> = (0..3).map(|_| lab.connect(5000)).collect();
    let mut expected = Vec::new();
    for (n, client) in clients.iter_mut().enumerate().rev() {
        let data = pattern(100_000 * (n + 1));
        client.write_all(&data).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
        let port = client.local_addr().unwrap().port();
        expected.push((format!("{:04}-10.99.0.1-{port}.bin", n + 1), data));
    }
    drop(clients);
    let (status, stdout) = recv.end();
    assert!(status.success(), "{:#?}", recv.lines);
    for (name, data) in &expected {
        let stored = fs::read(temp.path().join("in").join(name)).expect(name);
        assert!(stored == *data, "{name}: {} bytes", stored.len());
    }
    assert_eq!(fs::read_dir(temp.path().join("in")).unwrap().count(), 3);
    let report: Value = serde_json::from_slice(&stdout).unwrap();
    let numbers: Vec<_> = report["connections"].as_array().unwrap().iter().collect();
    assert_eq!(
        numbers.iter().map(|c| c["number"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(2), Some(3)]
    );
}

#[test]
fn a_full_disk_resets_the_connection() {
    let Some(lab) = Lab::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let json = temp.path().join("report.json");
    let disk = temp.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // A mount that only this thread, and what it starts, sees.
    let (mut recv, mut client) = thread::scope(|scope| {
        scope
            .spawn(|| {
                unshare(CloneFlags::CLONE_NEWNS).unwrap();
                let none = None::<&str>;
                mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).unwrap();
                let tmpfs = Some("tmpfs");
                mount(tmpfs, &disk, tmpfs, MsFlags::empty(), Some("size=1m")).unwrap();
                let output = format!("{}/out", disk.display());
                let report = json.to_str().unwrap();
                let recv = lab.recv(5000, &["--output", &output, "--report", report]);
                (recv, lab.connect(5000))
            })
            .join()
            .unwrap()
    });
    assert!(umount2(&disk, MntFlags::empty()).is_err(), "the mount did not leak");
    let error = loop {
        if let Err(error) = client.write_all(&pattern(1 << 20)) {
            break error;
        }
    };
    assert!(
        matches!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
        ),
        "{error}"
    );
    let (status, _) = recv.end();
    assert_eq!(status.code(), Some(1));
    let told = recv.lines.join("\n");
    assert!(told.contains("No space left on device"), "{told}");
    let connection = &report(&json)["connections"][0];
    assert_eq!(connection["closed"], "fastclose");
    assert!(connection["error"].as_str().unwrap().contains("No space left on device"));
    assert!(connection["bytes"].as_u64().unwrap() <= 1 << 20);
}

#[test]
fn signals_end_it_cleanly_with_the_report_written() {
    let Some(lab) = Lab::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    for (signal, busy) in
        [(Signal::SIGINT, false), (Signal::SIGTERM, false), (Signal::SIGINT, true)]
    {
        let json = temp.path().join(format!("{signal}-{busy}.json"));
        let mut recv = lab.recv(5000, &["--report", json.to_str().unwrap()]);
        let client = busy.then(|| {
            let mut client = lab.connect(5000);
            client.write_all(&pattern(1 << 20)).unwrap();
            client
        });
        // The bytes are in the kernel's hands; give them the time to arrive.
        thread::sleep(Duration::from_millis(200));
        recv.signal(signal);
        let (status, _) = recv.end();
        assert!(status.success(), "{signal}: {status}: {:#?}", recv.lines);
        assert!(!lab.has_program());
        let report = report(&json);
        assert_eq!(report["ended"], "signal");
        let connections = report["connections"].as_array().unwrap();
        assert_eq!(connections.len(), usize::from(busy));
        if let Some(mut client) = client {
            assert_eq!(connections[0]["bytes"], 1 << 20);
            assert_eq!(connections[0]["closed"], "fastclose");
            assert!(client.read(&mut [0; 1]).is_err(), "the peer is not told that all is well");
        }
    }
}

#[test]
fn an_interrupted_file_is_not_a_success() {
    let Some(lab) = Lab::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let output = temp.path().join("out");
    fs::write(&output, "former").unwrap();
    let mut recv = lab.recv(5000, &["--output", output.to_str().unwrap()]);
    let mut client = lab.connect(5000);
    client.write_all(b"the beginning").unwrap();
    let part = temp.path().join("out.part");
    while fs::metadata(&part).map_or(0, |part| part.len()) < 13 {
        thread::sleep(Duration::from_millis(5));
    }
    recv.signal(Signal::SIGTERM);
    let (status, _) = recv.end();
    assert_eq!(status.code(), Some(1));
    let told = recv.lines.join("\n");
    assert!(told.contains("interrupted"), "{told}");
    assert_eq!(fs::read(&part).unwrap(), b"the beginning", "what came is kept");
    assert_eq!(fs::read(&output).unwrap(), b"former", "and what was there too");
}

#[test]
fn an_output_that_takes_nothing_does_not_keep_it_from_ending() {
    let Some(lab) = Lab::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let json = temp.path().join("report.json");
    // Nobody reads the pipe that its standard output is.
    let mut recv = lab.recv(5000, &["--output", "-", "--report", json.to_str().unwrap()]);
    let mut client = lab.connect(5000);
    client.write_all(&pattern(300_000)).unwrap();
    thread::sleep(Duration::from_millis(300));
    recv.signal(Signal::SIGTERM);
    recv.wait_for("1 connection, ");
    while recv.is_running() {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(client.read(&mut [0; 1]).is_err(), "the peer is not told that all is well");
    assert!(!lab.has_program());
    let report = report(&json);
    assert_eq!(report["ended"], "signal");
    let connection = &report["connections"][0];
    assert!(connection["error"].as_str().unwrap().contains("does not take the data"));
}

#[test]
fn a_killed_receiver_leaves_no_program() {
    let Some(lab) = Lab::new() else { return };
    let mut recv = lab.recv(5000, &[]);
    assert!(lab.has_program());
    recv.signal(Signal::SIGKILL);
    let _ = recv.end();
    assert!(!lab.has_program());
}

#[test]
fn a_peer_that_resets_is_an_error_and_not_the_end_of_a_file() {
    let Some(lab) = Lab::new() else { return };
    let temp = tempfile::tempdir().unwrap();
    let directory = format!("{}/", temp.path().display());
    let mut recv = lab.recv(5000, &["--output", &directory, "--connections", "1", "--report", "-"]);
    let mut client = lab.connect(5000);
    client.write_all(&pattern(100_000)).unwrap();
    thread::sleep(Duration::from_millis(100));
    nix::sys::socket::setsockopt(
        &client,
        nix::sys::socket::sockopt::Linger,
        &libc::linger { l_onoff: 1, l_linger: 0 },
    )
    .unwrap();
    drop(client);
    let (status, stdout) = recv.end();
    assert_eq!(status.code(), Some(1), "{:#?}", recv.lines);
    let report: Value = serde_json::from_slice(&stdout).unwrap();
    let connection = &report["connections"][0];
    assert!(["reset", "fastclose"].contains(&connection["closed"].as_str().unwrap()));
    assert!(connection["error"].is_string());
    let name = fs::read_dir(temp.path()).unwrap().next().unwrap().unwrap().file_name();
    assert!(name.to_str().unwrap().ends_with(".bin.part"), "{name:?}");
}
