use super::*;

#[test]
fn a_nic_config_reads_every_part() {
    let nic: NicConfig = "eth0:queues=0-1+4:cpus=2+3:mode=copy".parse().unwrap();
    assert_eq!(nic, NicConfig::new("eth0").queues([0, 1, 4]).cpus([2, 3]).mode(Mode::Copy));
}

#[test]
fn a_nic_config_refuses_what_it_does_not_know() {
    for text in ["", ":queues=0", "e:queues", "e:queues=", "e:queues=x", "e:cpu=1", "e:mode=fast"] {
        assert!(text.parse::<NicConfig>().is_err(), "{text}");
    }
}

#[test]
fn what_is_wrong_with_a_nic_config_is_told() {
    for (text, words) in [
        ("e:cpus=9999", "cpus: 9999 is more than 8191"),
        ("e:queues=0-1,1", "queues: 1 is named twice"),
        ("e:queues=0:cpus=1:queues=1", "queues is given twice"),
        ("e:mode=copy:mode=copy", "mode is given twice"),
    ] {
        let error = text.parse::<NicConfig>().unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(text), "{error}");
    }
}

#[test]
fn the_loopback_interface_is_described() {
    let facts = NicFacts::read("lo").unwrap();
    assert_eq!((facts.name.as_str(), facts.index), ("lo", 1));
    assert!(facts.receive_queues >= 1);
    assert_eq!(facts.driver, None);
    assert!(facts.vlans.is_empty());
    assert!(!facts.strips_vlan_tags);
    if facts.up {
        assert!(facts.addresses.contains(&IpAddr::from([127, 0, 0, 1])));
    }
}

#[test]
fn an_unknown_interface_and_a_path_are_refused() {
    for name in ["", ".", "..", "../net/lo", "mpxdp-not-there"] {
        assert!(matches!(NicFacts::read(name), Err(Error::NoSuchNic { .. })), "{name}");
    }
}

#[test]
fn an_interface_that_is_not_there_tells_nothing_of_vlan_tags() {
    assert!(!ethtool::strips_vlan_tags("lo").unwrap());
    let error = ethtool::strips_vlan_tags("mpxdp-not-there").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
}
