//! CEL of health rules: compiling hostile text never panics.
#![no_main]
use forge_core::gate::compile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = compile(text);
});
