//! Programs as an empty base needs them: for the right processor, and complete in themselves.

use forge_core::oci::Architecture;

/// Why a program cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// It is something else.
    #[error("it is not a 64-bit ELF program")]
    Form,
    /// It is for another processor.
    #[error("it is for another processor than {wanted}")]
    Processor {
        /// The one it should be for.
        wanted: Architecture,
    },
    /// It wants to be loaded by something that an empty base does not have.
    #[error("it is linked dynamically, and an empty base has no loader")]
    Dynamic,
}

/// The segment that names a loader.
const INTERPRETER: u64 = 3;

/// Looks at a program.
///
/// # Errors
/// When it could not run in an image for this processor.
pub fn check(program: &[u8], architecture: Architecture) -> Result<(), ProgramError> {
    // 64 bits, little endian, version 1.
    if !program.starts_with(b"\x7fELF\x02\x01\x01") {
        return Err(ProgramError::Form);
    }
    let field = |at: usize, length: usize| number(program, at, length).ok_or(ProgramError::Form);
    let machine = match architecture {
        Architecture::Amd64 => 62,
        Architecture::Arm64 => 183,
    };
    if field(18, 2)? != machine {
        return Err(ProgramError::Processor { wanted: architecture });
    }
    let (first, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    for segment in 0..count {
        let at = segment.checked_mul(size).and_then(|offset| offset.checked_add(first));
        let at = at.and_then(|at| usize::try_from(at).ok()).ok_or(ProgramError::Form)?;
        if field(at, 4)? == INTERPRETER {
            return Err(ProgramError::Dynamic);
        }
    }
    Ok(())
}

/// A number of so many bytes, the smallest first.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The smallest program that passes: a header, and segments of these kinds.
    pub(crate) fn program(architecture: Architecture, segments: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[18] = if architecture == Architecture::Amd64 { 62 } else { 183 };
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = u8::try_from(segments.len()).unwrap();
        for kind in segments {
            let at = bytes.len();
            bytes.resize(at + 56, 0);
            bytes[at] = *kind;
        }
        bytes
    }

    #[test]
    fn a_static_program_for_the_right_processor_passes_and_nothing_else_does() {
        let arm = program(Architecture::Arm64, &[1, 1, 2]);
        assert_eq!(check(&arm, Architecture::Arm64), Ok(()));
        assert_eq!(check(&arm, Architecture::Amd64), Err(ProgramError::Processor { wanted: Architecture::Amd64 }));
        let dynamic = program(Architecture::Amd64, &[6, INTERPRETER as u8, 1]);
        assert_eq!(check(&dynamic, Architecture::Amd64), Err(ProgramError::Dynamic));
        let truncated = &program(Architecture::Amd64, &[1, 1])[..100];
        assert_eq!(check(truncated, Architecture::Amd64), Err(ProgramError::Form));
        for other in [b"".as_slice(), b"#!/bin/sh\n", b"\x7fELF\x01\x01\x01"] {
            assert_eq!(check(other, Architecture::Amd64), Err(ProgramError::Form));
        }
    }

    #[test]
    fn the_program_of_this_test_is_for_this_machine() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let architecture = Architecture::of_machine(std::env::consts::ARCH).unwrap();
        // It is linked with the C library of the machine, unless somebody builds the tests otherwise.
        assert!(matches!(check(&own, architecture), Ok(()) | Err(ProgramError::Dynamic)));
    }
}
