//! `make bench-run`: what runs and refreshes cost on the real Argo, on a sandbox named `bench`. First a hard refresh of the example's 46 Applications
//! in Argo CD, through the plugin, of plain directories and of OCI sources; then its 46 nodes with real pods by three ways one after the other, then
//! chains under different ticks, then graphs of growing size. Nothing here is asserted: machines are shared and noisy, and a figure is for people to judge.
//!
//! The sandbox is left to whoever started this: `tools/bench-run` takes it down. What can be chosen, by environment:
//! `FORGE_BENCH_REFRESH` (5) how often each set of Applications is refreshed, 0 for not at all;
//! `FORGE_BENCH_SCALE` (3.0) what the times of the example are multiplied with; `FORGE_BENCH_WAYS` (plugin,pod,waves);
//! `FORGE_BENCH_TICKS` (50,100,200); `FORGE_BENCH_SIZES` (100,300,1000); `FORGE_BENCH_WORKLOAD` (kwok; configmap); `FORGE_BENCH_SEED`.
//! A list that is empty leaves its part out.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::str::FromStr;

use forge_testkit::bench::refresh;
use forge_testkit::bench::scale::{self, Workload};
use forge_testkit::bench::ticks;
use forge_testkit::bench::ways::{self, Outcome, Way};
use forge_testkit::bench::{Measured, say};
use forge_testkit::platform::Platform;

const SEED: u64 = 20_260_101;
/// How often each set of Applications is refreshed.
const REFRESHES: usize = 5;
/// The example becomes ready within seconds, to be watched; real applications take their time.
const SCALE: f64 = 3.0;
const TICKS: &str = "50,100,200";
const SIZES: &str = "100,300,1000";

fn main() -> Result<(), Box<dyn Error>> {
    // What is wrong is said before an hour has passed.
    let seed: u64 = chosen("FORGE_BENCH_SEED", SEED)?;
    let refreshes: usize = chosen("FORGE_BENCH_REFRESH", REFRESHES)?;
    let scale: f64 = chosen("FORGE_BENCH_SCALE", SCALE)?;
    let sizes: Vec<usize> = listed("FORGE_BENCH_SIZES", SIZES, |size| size.parse().ok())?;
    let ticks: Vec<u32> = listed("FORGE_BENCH_TICKS", TICKS, |tick| tick.parse().ok())?;
    let ways: Vec<Way> = listed("FORGE_BENCH_WAYS", "plugin,pod,waves", Way::named)?;
    let workload = std::env::var("FORGE_BENCH_WORKLOAD").unwrap_or_else(|_| "kwok".to_owned());
    let workload = Workload::named(&workload).ok_or_else(|| format!("FORGE_BENCH_WORKLOAD: `{workload}` is none"))?;

    let platform: &'static Platform = Box::leak(Box::new(Platform::up("bench")));
    let (mut refreshed, mut outcomes, mut ticked, mut figures) = (None, Vec::new(), Vec::new(), Vec::new());
    let mut refreshing = || -> Measured<()> {
        if refreshes > 0 {
            let outcome = refreshed.insert(refresh::measure(platform, refreshes)?);
            say_so_far(&refresh::table(outcome));
        }
        Ok(())
    };
    let done = refreshing().and_then(|()| {
        if ways.is_empty() && ticks.is_empty() && sizes.is_empty() {
            return Ok(());
        }
        ways::warm_up(platform)?;
        measure(platform, scale, &ways, &mut outcomes)?;
        for tick in &ticks {
            ticked.push(ticks::measure(platform, *tick)?);
            say_so_far(&ticks::table(&ticked));
        }
        for size in &sizes {
            figures.push(scale::measure(platform, *size, workload, seed)?);
            say_so_far(&scale::table(&figures));
        }
        Ok(())
    });
    // What was measured is not lost to what failed after it.
    if let Some(refreshed) = &refreshed {
        println!("\nrefresh: a hard refresh in Argo CD of the same objects, from one Git server and one registry");
        println!("{}", refresh::table(refreshed));
    }
    if !outcomes.is_empty() {
        println!(
            "\nrun: 46 nodes with real pods on the real Argo, one way after the other; times of the example × {scale}"
        );
        println!("{}", ways::table(&outcomes));
    }
    if !ticked.is_empty() {
        println!("ticks: of agent and controller alike\n{}", ticks::table(&ticked));
    }
    if !figures.is_empty() {
        println!("scale: seed {seed}; layers of 20 nodes, each waiting for one to three of the layer before");
        println!("  every node: {}; all in one namespace", workload.as_str());
        println!("{}", scale::table(&figures));
    }
    done
}

fn measure(platform: &'static Platform, scale: f64, ways: &[Way], outcomes: &mut Vec<Outcome>) -> Measured<()> {
    for way in ways {
        outcomes.push(ways::measure(platform, *way, scale)?);
        say_so_far(&ways::table(outcomes));
    }
    Ok(())
}

/// A driver that panics ends the process at once: what is known is on stderr by then.
fn say_so_far(table: &str) {
    say(&format!("so far\n{table}"));
}

/// A number from the environment.
fn chosen<T: FromStr>(name: &str, otherwise: T) -> Result<T, Box<dyn Error>> {
    match std::env::var(name) {
        Err(_) => Ok(otherwise),
        Ok(text) => text.parse().map_err(|_| format!("{name}: `{text}` is not a number").into()),
    }
}

/// A list from the environment, with commas; an empty one is one.
fn listed<T>(name: &str, otherwise: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Box<dyn Error>> {
    let text = std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| read(word).ok_or_else(|| format!("{name}: `{word}` is none").into())).collect()
}
