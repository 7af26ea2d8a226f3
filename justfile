# Recipes of mpxdp. `./dev RECIPE` installs what they need first.

set shell := ["bash", "-euo", "pipefail", "-c"]

export RUSTDOCFLAGS := "-D warnings"

# Lists the recipes.
default:
    @just --list

# Sends a stream from the kernel's MPTCP to mpxdp, and to the kernel's own readers beside it.
demo *ARGS: release
    target/release/mpxdp-bench demo {{ARGS}}

# Measures how fast the receivers are, and what that costs: `./dev throughput --help`.
throughput *ARGS: release
    target/release/mpxdp-bench throughput {{ARGS}}

# Measures at every placement of NIC processing, workers and reader that differs.
placement *ARGS: release
    target/release/mpxdp-bench placement {{ARGS}}

# Measures how long messages take to the application.
latency *ARGS: release
    target/release/mpxdp-bench latency {{ARGS}}

# Measures what a packet costs, stage by stage, without a kernel; needs no root.
pipeline *ARGS: release
    target/release/mpxdp-bench pipeline {{ARGS}}

# Makes an HTML page of the documents that `--json FILE` wrote.
report *ARGS: release
    target/release/mpxdp-bench report {{ARGS}}

# Everything that has to pass: lints, docs, all tests (root), loom, the prebuilt XDP object, guests.
test: privileges lint doc object loom
    MPXDP_REQUIRE_PRIVILEGES=1 cargo test --profile checked --workspace --all-targets --no-fail-fast
    cargo test --profile checked --workspace --doc
    just vm-test

# What needs no root: the same tests, the privileged ones skipped with their reason.
test-unprivileged:
    cargo test --workspace

# Formatting and clippy, warnings as errors.
lint:
    cargo fmt --all --check
    cargo clippy --quiet --workspace --all-targets -- -D warnings
    cargo clippy --quiet --package mpxdp --bench instructions -- -D warnings

# The documentation, warnings as errors.
doc:
    cargo doc --quiet --workspace --no-deps --document-private-items

# Model-checks the parts that threads share.
loom:
    RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom --package mpxdp --package mpxdp-proto --lib loom_

# Rebuilds the XDP program and compares it with the object in the repository.
object:
    cargo run --quiet --package mpxdp-ebpf --features rebuild --bin rebuild-object -- --check

# Rebuilds the XDP program into the repository, after a change of its source.
object-update:
    cargo run --quiet --package mpxdp-ebpf --features rebuild --bin rebuild-object

# Guests with other kernels and with NICs that qemu models: `just vm-test --list`, `just vm-test igb`.
vm-test *ARGS:
    cargo run --quiet --profile checked --bin mpxdp-vm -- test {{ARGS}}

# Licences, sources and duplicate crates (needs cargo-deny).
deny:
    cargo deny check bans licenses sources

# Times the parts of the data plane; on a machine that has nothing else to do.
bench *ARGS:
    cargo bench --package mpxdp --bench parts -- {{ARGS}}

# Counts the instructions of the parts of the data plane, which are the same on a busy machine.
instructions *ARGS: valgrind
    PATH="$PWD/.dev/bin:$PATH" cargo bench --package mpxdp --bench instructions -- {{ARGS}}

# Installs what `instructions` needs: valgrind, and the runner of the very version of the library.
[private]
valgrind:
    @command -v valgrind >/dev/null || { echo "instructions: installing system package: valgrind" >&2; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq valgrind >/dev/null; } || { echo "instructions: valgrind is missing: install it as root, then run this again" >&2; exit 1; }
    @version=$(sed -n '/^name = "gungraun-runner"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock); \
    [ "$(.dev/bin/gungraun-runner --version 2>/dev/null | awk '{print $2}')" = "$version" ] || { echo "instructions: installing gungraun-runner $version into .dev/bin" >&2; cargo install --quiet --locked --debug --root .dev --version "$version" gungraun-runner; }

# Fuzzes a target for so many seconds, from the kept inputs on (endpoint, options, range_set, pcap).
fuzz TARGET="endpoint" SECONDS="60": fuzzer
    mkdir -p fuzz/new/{{TARGET}}
    cargo +nightly fuzz run --fuzz-dir fuzz {{TARGET}} fuzz/new/{{TARGET}} fuzz/corpus/{{TARGET}} -- -max_total_time={{SECONDS}} -timeout=60

# Keeps of what fuzzing found the inputs that reach something that no kept one does.
fuzz-keep TARGET="endpoint": fuzzer
    cargo +nightly fuzz run --fuzz-dir fuzz {{TARGET}} fuzz/corpus/{{TARGET}} fuzz/new/{{TARGET}} -- -merge=1

# Says what fuzzing lacks, and installs cargo-fuzz if that is all.
[private]
fuzzer:
    @cargo +nightly --version >/dev/null 2>&1 || { echo "fuzz: needs a nightly compiler for its sanitizers; run: rustup toolchain install nightly" >&2; exit 1; }
    @cargo fuzz --version >/dev/null 2>&1 || { echo "fuzz: installing cargo-fuzz (cargo install cargo-fuzz)" >&2; cargo install --quiet --locked cargo-fuzz; }

# The lab by hand: `just lab up --links 2`, `just lab exec snd ip addr`, `just lab down`.
lab *ARGS: release
    target/release/mpxdp-bench lab {{ARGS}}

# The programs as users run them.
[private]
release:
    cargo build --release --package mpxdp-control --package mpxdp-bench

# Says at once what the privileged tests lack, not after minutes of building.
[private]
privileges:
    @[ "$(id -u)" -eq 0 ] || { echo "test: needs root (it attaches XDP programs in namespaces of its own); without: ./dev test-unprivileged" >&2; exit 1; }
    @[ "$(cat /proc/sys/net/mptcp/enabled 2>/dev/null)" = 1 ] || { echo "test: this kernel has no MPTCP, or it is off (sysctl net.mptcp.enabled)" >&2; exit 1; }
