//! Writes the twin of the example platform, for a real run on a sandbox, into an empty or new folder, and prints the
//! seconds that no run of it can undercut.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use forge_testkit::twin::{self, Options};

/// Writes the twin of the example platform into a folder
#[derive(Debug, Parser)]
struct Arguments {
    /// Where to
    folder: PathBuf,
    /// The repository, by the name that it has for pods
    #[arg(long)]
    url: String,
    /// The sample workload, by digest
    #[arg(long)]
    image: String,
    /// The name of the environment
    #[arg(long, default_value = "dev")]
    environment: String,
    /// Let Argo CD sync by itself, prune and heal
    #[arg(long)]
    auto: bool,
    /// What the times of the example are multiplied with
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Nothing but Deployments, for measuring
    #[arg(long)]
    pods: bool,
}

fn main() -> ExitCode {
    let Arguments { folder, url, image, environment, auto, scale, pods } = Arguments::parse();
    let options = Options { auto, scale, pods, ..Options::new(&environment, &url, &image) };
    let told = match write(&folder, &twin::files(&options)) {
        Ok(()) => writeln!(io::stdout(), "{}", twin::nominal_critical_path(&options)),
        Err(error) => {
            let _ = writeln!(io::stderr(), "failed to write `{}`: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn write(folder: &Path, files: &[(String, String)]) -> io::Result<()> {
    for (path, text) in files {
        let file = folder.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(file, text)?;
    }
    Ok(())
}
