//! The network of a sandbox: one link to the host, a route for services, and no way off the machine.
//!
//! On the host there is the link and one route through it, and both go when the sandbox's network namespace goes. Inside
//! there is no default route, and what would leave by the link as anything but an answer to the host is dropped.

use std::fs;
use std::path::Path;

use forge_core::digest::Digest;

use crate::folder::Folder;
use crate::init::Init;
use crate::program::{Program, ProgramError};
use crate::range::{Range, Subnet};

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// `ip` or `nft` said no.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// All ranges are taken.
    #[error("no free address range: every 10.200.0.0/16 to 10.239.0.0/16 is in use on this machine")]
    Full,
    /// The range of a sandbox that kept its data is somebody else's now.
    #[error("the address range {range} of this sandbox is in use by `{user}`")]
    Taken {
        /// Which.
        range: Subnet,
        /// The link or route that has it.
        user: String,
    },
    /// The host would pass on packets.
    #[error("failed to keep the host from forwarding what the sandbox sends: `{path}`: {source}")]
    Forwarding {
        /// The setting.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Who on the host uses addresses of a range.
fn user_of(range: Range) -> Result<Option<String>, ProgramError> {
    if Path::new("/sys/class/net").join(range.link()).exists() {
        return Ok(Some(range.link()));
    }
    let routes = Program::new("ip").args(["-4", "route", "show", "table", "all"]).run()?;
    Ok(routes.lines().find_map(|route| {
        // `local`, `broadcast` and their like stand before the destination.
        let mut words = route.split_whitespace().take(2);
        let clashes = words.any(|word| Subnet::parse(word).is_some_and(|subnet| subnet.overlaps(range.all())));
        clashes.then(|| format!("route {}", route.trim()))
    }))
}

/// Connects a new sandbox. The link is the claim to a range: whoever creates it first has it.
pub fn claim(init: Init, folder: &Folder, kept: Option<Range>) -> Result<Range, NetworkError> {
    if let Some(range) = kept {
        if let Some(user) = user_of(range)? {
            return Err(NetworkError::Taken { range: range.all(), user });
        }
        return connect(init, folder, range).map(|()| range).map_err(Into::into);
    }
    for range in Range::candidates(folder.name.as_str()) {
        if user_of(range)?.is_some() {
            continue;
        }
        match connect(init, folder, range) {
            Ok(()) => return Ok(range),
            // Somebody was faster.
            Err(ProgramError::Failed { said, .. }) if said.contains("File exists") => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(NetworkError::Full)
}

fn connect(init: Init, folder: &Folder, range: Range) -> Result<(), ProgramError> {
    let (pid, link) = (init.pid.to_string(), range.link());
    Program::new("ip").args(["link", "add", &link, "type", "veth", "peer", "name", "uplink", "netns", &pid]).run()?;
    sign(folder, range)
}

/// Says whose a link is. Without it, who comes back after another took the range would remove the other's link.
fn sign(folder: &Folder, range: Range) -> Result<(), ProgramError> {
    Program::new("ip").args(["link", "set", &range.link(), "alias", &signature(folder.path())]).run().map(drop)
}

/// The same for every way to a folder, and short enough for any.
fn signature(folder: &Path) -> String {
    let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    format!("forge-sandbox {}", Digest::of(real.as_os_str().as_encoded_bytes()).short(16))
}

/// Makes everything as it should be; what is there stays.
pub fn ensure(init: Init, folder: &Folder, range: Range) -> Result<(), NetworkError> {
    let link = range.link();
    match owner(range) {
        None => connect(init, folder, range)?,
        Some(owner) if owner.is_empty() => sign(folder, range)?,
        Some(owner) if owner != signature(folder.path()) => {
            return Err(NetworkError::Taken { range: range.all(), user: link });
        }
        Some(_) => {}
    }
    // The host must not pass on what a sandbox sends, whatever its own setting is.
    for (family, name, value) in [("ipv4", "forwarding", "0"), ("ipv6", "disable_ipv6", "1")] {
        let path = format!("/proc/sys/net/{family}/conf/{link}/{name}");
        match fs::write(&path, value) {
            // A kernel without IPv6 passes on nothing of it.
            Err(error) if family == "ipv6" && error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.map_err(|source| NetworkError::Forwarding { path, source })?,
        }
    }
    let (host, node) = (range.host(), range.node());
    batch(
        Program::new("ip").args(["-force", "-batch", "-"]),
        &[
            format!("address replace {host}/30 dev {link}"),
            format!("link set {link} up"),
            format!("route replace {} via {node} dev {link}", range.all()),
        ],
    )?;
    let inside = inside(init).args(["ip", "-batch", "-"]);
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("address replace {node}/30 dev uplink"),
        "link set uplink up".to_owned(),
    ];
    // The kernel here knows no dummy device: an empty bridge gives services a route, so that a packet that no rule of
    // kube-proxy matched dies on it.
    if !links(init)?.contains("services") {
        lines.push("link add services type bridge".to_owned());
    }
    lines.push("link set services up".to_owned());
    lines.push(format!("route replace {} dev services", range.services()));
    batch(inside, &lines)?;
    // Pods are routed, each over a link of its own; nothing else may claim their addresses.
    self::inside(init).args(["nft", "-f", "-"]).input(guard()).run()?;
    Ok(())
}

/// `add` and `flush` make it the same whether or not it was there.
fn guard() -> String {
    "table inet forge-sandbox\n\
     delete table inet forge-sandbox\n\
     table inet forge-sandbox {\n\
       chain output { type filter hook output priority 10; policy accept; oifname uplink ct state != { established, related } drop; }\n\
       chain forward { type filter hook forward priority 10; policy accept; oifname uplink ct state != { established, related } drop; }\n\
     }\n"
    .to_owned()
}

fn links(init: Init) -> Result<String, ProgramError> {
    inside(init).args(["ip", "-brief", "link"]).run()
}

fn batch(program: Program, lines: &[String]) -> Result<(), ProgramError> {
    program.input(lines.join("\n") + "\n").run().map(drop)
}

/// A program in the network of the sandbox, with the files of the host.
pub fn inside(init: Init) -> Program {
    Program::new("nsenter").arg(format!("--net=/proc/{}/ns/net", init.pid)).arg("--")
}

/// Whose a link is, if there is such a link; nothing if it was not said yet.
fn owner(range: Range) -> Option<String> {
    let alias = fs::read_to_string(Path::new("/sys/class/net").join(range.link()).join("ifalias")).ok()?;
    Some(alias.trim().to_owned())
}

/// Removes the link of a dead sandbox. The kernel takes it down by itself, but with many pods only seconds after the last
/// process, and not at all while somebody else holds the namespace open. False if the range is somebody else's by now.
pub fn release(range: Range, folder: &Path) -> Result<bool, ProgramError> {
    match owner(range) {
        None => Ok(true),
        Some(owner) if !owner.is_empty() && owner != signature(folder) => Ok(false),
        Some(_) => match Program::new("ip").args(["link", "delete", &range.link()]).run() {
            Err(error) if owner(range).is_some() => Err(error),
            _ => Ok(true),
        },
    }
}
