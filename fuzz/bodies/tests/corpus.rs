//! Every input that fuzzing found worth keeping, on every run of the tests.

use std::fs;
use std::path::Path;

#[test]
fn every_input_of_the_corpora_passes() {
    for (name, target) in mpxdp_fuzz::TARGETS {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
        let files = fs::read_dir(&corpus).unwrap_or_else(|e| panic!("{}: {e}", corpus.display()));
        let mut inputs = 0;
        for file in files {
            let path = file.expect("a directory that can be read").path();
            let input = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            // The test's output, shown if it fails, ends with the input that did it.
            println!("{}", path.display());
            target(&input);
            inputs += 1;
        }
        assert!(inputs > 0, "{} is empty", corpus.display());
    }
}
