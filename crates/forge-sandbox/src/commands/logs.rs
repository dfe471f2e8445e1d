//! `forge sandbox logs`.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::thread;
use std::time::Duration;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::cli::{self, Global};
use crate::commands::status::known;

/// Show what a component wrote
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// As `status` names it; also `init` and `audit`
    component: String,
    /// Only the last lines
    #[arg(long, short = 'n', value_name = "N")]
    tail: Option<usize>,
    /// Go on until interrupted
    #[arg(long, short)]
    follow: bool,
}

/// How much of a log is read at most; more than its rotation leaves.
const MOST: u64 = 256 << 20;

pub(crate) fn run(global: &Global, arguments: &Arguments) -> Result<Exit, Failure> {
    let folder = global.folder()?;
    known(&folder)?;
    let path = folder.log(&arguments.component);
    let plain = arguments.component.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let file = match File::open(&path) {
        Ok(file) if plain => file,
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::new(Code::SandboxStep, format!("failed to read `{}`: {error}", path.display()))
                .hint("a sandbox is root's: run it as root or with sudo -E"));
        }
        _ => {
            let mut names: Vec<String> = fs::read_dir(folder.join("logs"))
                .map(|entries| {
                    entries
                        .flatten()
                        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log").map(str::to_owned))
                        .collect()
                })
                .unwrap_or_default();
            names.sort();
            return Err(Failure::new(Code::UnknownName, format!("no component `{}` has a log", arguments.component))
                .hint(format!("there are: {}", names.join(", "))));
        }
    };
    let unreadable = |error: std::io::Error| {
        Failure::new(Code::SandboxStep, format!("failed to read `{}`: {error}", path.display()))
    };
    let mut bytes = Vec::new();
    let length = file.metadata().map_err(unreadable)?.len();
    (&file).seek(SeekFrom::Start(length.saturating_sub(MOST))).map_err(unreadable)?;
    (&file).take(MOST).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&bytes);
    match arguments.tail {
        Some(tail) => {
            let lines: Vec<&str> = text.lines().collect();
            let last = lines.get(lines.len().saturating_sub(tail)..).unwrap_or_default();
            cli::data(&last.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        }
        None => cli::data(&text)?,
    }
    if arguments.follow {
        follow(&file).map_err(unreadable)?;
    }
    Ok(Exit::Done)
}

/// Writes what is added, until interrupted or until nobody reads it.
fn follow(mut file: &File) -> std::io::Result<()> {
    loop {
        thread::sleep(Duration::from_millis(200));
        if file.stream_position()? > file.metadata()?.len() {
            file.seek(SeekFrom::Start(0))?;
        }
        let mut more = Vec::new();
        file.take(MOST).read_to_end(&mut more)?;
        match std::io::stdout().write_all(&more).and_then(|()| std::io::stdout().flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
    }
}
