//! Layers of resources: tar archives, packed by gzip.
//!
//! [`pack`] writes one file per document in the order of output, so that whoever renders can pass them on as they come.
//! [`unpack`] takes archives of anybody who makes them of regular files and folders, and holds one file, the window of
//! the compressor and the names of the files, whatever the archive claims. Sizes are compared before memory is taken;
//! what two programs could unpack to two different things is refused.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};

use tar::{Builder, EntryType, Header as TarHeader};
use zlib_rs::{Inflate, InflateFlush, Status};

use super::document::twice;
use super::{Document, Key, Limits, ReleaseError, same};
use crate::digest::{Digest, Digester};
use crate::name::clip;
use crate::oci::{Descriptor, OciError, gzip};

/// What archives are made of.
const BLOCK: usize = 512;
/// What is read at once.
const ROOM: usize = 64 << 10;
/// Longest path of an entry.
const LONGEST_PATH: usize = 512;
/// Bytes of what is said about an entry before it.
const LONGEST_EXTENSION: u64 = 64 << 10;
/// The frame of gzip, and the largest window.
const WINDOW: u8 = 16 + 15;

/// Whoever is given files, by their paths.
pub type Each<'e> = dyn FnMut(&str, Vec<u8>) -> Result<(), ReleaseError> + 'e;

/// A layer of documents.
#[derive(Debug, PartialEq, Eq)]
pub struct Packed {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The digest of what they unpack to.
    pub unpacked: Digest,
}

/// Packs a layer of documents: one file each, in the order of their keys, without time or owner.
///
/// # Errors
/// When a document stands twice, or its name fits no archive.
pub fn pack(documents: &[Document]) -> Result<Packed, ReleaseError> {
    let mut sorted: Vec<(Key, &Document)> = documents.iter().map(|document| (document.key(), document)).collect();
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (keys, sorted): (Vec<Key>, Vec<&Document>) = sorted.into_iter().unzip();
    if let Some(key) = twice(&keys) {
        return Err(ReleaseError::Twice { what: "the layer".to_owned(), document: key.to_string() });
    }
    let mut archive = Builder::new(Vec::new());
    for document in sorted {
        let (path, text) = (document.path(), document.text());
        let mut header = TarHeader::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(text.len() as u64);
        let added = archive.append_data(&mut header, &path, text.as_bytes());
        added.map_err(|error| OciError::Entry { path, error })?;
    }
    let archive = archive.into_inner().map_err(|error| OciError::Entry { path: String::new(), error })?;
    Ok(Packed { bytes: gzip(&archive)?, unpacked: Digest::of(&archive) })
}

/// Unpacks a layer as it comes, gives every file to `each` by its path, and says how many bytes they unpacked to.
///
/// What `each` was given counts only once this has returned: the digest is known at the end.
///
/// # Errors
/// When these are not the bytes that the descriptor promises, or not an archive of regular files within the limits; or
/// when `each` fails.
pub fn unpack(
    packed: &mut dyn Read,
    expected: &Descriptor,
    limits: &Limits,
    each: &mut Each<'_>,
) -> Result<u64, ReleaseError> {
    let what = format!("layer `sha256:{}…`", expected.digest.short(12));
    if expected.size > limits.compressed {
        let (found, limit) = (expected.size, limits.compressed);
        return Err(ReleaseError::TooLarge { what, found, limit, unit: "bytes" });
    }
    let mut stream = Stream {
        packed,
        expected,
        what,
        digester: Digester::default(),
        input: vec![0; ROOM],
        start: 0,
        end: 0,
        inflate: Inflate::new(true, WINDOW),
        ended: false,
        unpacked: 0,
        most: limits.extracted,
    };
    let mut stopped = false;
    let read = entries(&mut stream, limits, &mut |path: &str, content: Vec<u8>| {
        each(path, content).inspect_err(|_| stopped = true)
    });
    match read {
        // Whoever gets the content has the say, and what does not come cannot be compared.
        Err(error) if stopped || matches!(error, ReleaseError::Read { .. }) => Err(error),
        // That these are other bytes than promised says more than what is wrong with them.
        Err(error) => Err(stream.rest().err().unwrap_or(error)),
        Ok(()) => match stream.rest()? {
            0 => Ok(stream.unpacked),
            left => Err(stream.corrupt(format!("{left} bytes follow the end of the compressed data, expected none"))),
        },
    }
}

/// The archive inside the packed bytes, as it unpacks.
struct Stream<'r> {
    packed: &'r mut dyn Read,
    expected: &'r Descriptor,
    what: String,
    digester: Digester,
    input: Vec<u8>,
    /// What of the input was not unpacked yet.
    start: usize,
    end: usize,
    inflate: Inflate,
    /// The compressed data came to its end.
    ended: bool,
    unpacked: u64,
    most: u64,
}

impl Stream<'_> {
    fn corrupt(&self, why: impl Into<String>) -> ReleaseError {
        ReleaseError::Corrupt { what: self.what.clone(), why: why.into() }
    }

    fn malformed(&self, why: impl Into<String>) -> ReleaseError {
        ReleaseError::malformed(self.what.clone(), why)
    }

    /// Reads the next packed bytes; false if there are none.
    fn refill(&mut self) -> Result<bool, ReleaseError> {
        (self.start, self.end) = (0, 0);
        let read = loop {
            match self.packed.read(&mut self.input) {
                Ok(read) => break read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ReleaseError::Read { what: self.what.clone(), error }),
            }
        };
        self.digester.update(self.input.get(..read).unwrap_or_default());
        self.end = read.min(self.input.len());
        let (found, expected) = (self.digester.length(), self.expected.size);
        if found > expected {
            return Err(ReleaseError::Size { what: self.what.clone(), found, expected });
        }
        Ok(read > 0)
    }

    /// Fills the room with unpacked bytes; fewer come only at the end.
    fn read(&mut self, room: &mut [u8]) -> Result<usize, ReleaseError> {
        let mut filled = 0;
        while filled < room.len() && !self.ended {
            let input = self.input.get(self.start..self.end).unwrap_or_default();
            let output = room.get_mut(filled..).unwrap_or_default();
            let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(input, output, InflateFlush::NoFlush);
            let taken = usize::try_from(self.inflate.total_in() - before_in).unwrap_or(usize::MAX);
            let made = self.inflate.total_out() - before_out;
            self.start = self.start.saturating_add(taken).min(self.end);
            filled = filled.saturating_add(usize::try_from(made).unwrap_or(usize::MAX));
            self.unpacked = self.unpacked.saturating_add(made);
            if self.unpacked > self.most {
                let (what, found, limit) = (self.what.clone(), self.unpacked, self.most);
                return Err(ReleaseError::TooLarge { what, found, limit, unit: "unpacked bytes" });
            }
            match status {
                Ok(Status::StreamEnd) => self.ended = true,
                Ok(Status::Ok | Status::BufError) if taken == 0 && made == 0 => {
                    if self.start < self.end {
                        return Err(self.corrupt("the compressed data does not go on"));
                    }
                    if !self.refill()? {
                        return Err(self.corrupt("it is cut off"));
                    }
                }
                Ok(Status::Ok | Status::BufError) => {}
                Err(error) => return Err(self.corrupt(format!("it is not gzip: {}", error.as_str()))),
            }
        }
        Ok(filled)
    }

    /// Fills the room, or says that the archive is cut off.
    fn exactly(&mut self, room: &mut [u8]) -> Result<(), ReleaseError> {
        if self.read(room)? < room.len() {
            return Err(self.corrupt("its archive is cut off"));
        }
        Ok(())
    }

    /// The content of an entry, without what fills its last block.
    fn content(&mut self, size: u64) -> Result<Vec<u8>, ReleaseError> {
        // Whoever calls has compared the size with a limit.
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut content = vec![0; size];
        self.exactly(&mut content)?;
        let mut padding = [0; BLOCK];
        let padding = padding.get_mut(..size.next_multiple_of(BLOCK) - size).unwrap_or_default();
        self.exactly(padding)?;
        Ok(content)
    }

    /// Reads what is left of the packed bytes, compares all of them with what was promised, and says how many were left.
    fn rest(&mut self) -> Result<u64, ReleaseError> {
        let mut left = (self.end - self.start) as u64;
        while self.refill()? {
            left = left.saturating_add(self.end as u64);
        }
        let digester = std::mem::take(&mut self.digester);
        let (found, expected) = (digester.length(), self.expected.size);
        if found != expected {
            return Err(ReleaseError::Size { what: self.what.clone(), found, expected });
        }
        same(&self.what, digester.finish(), &self.expected.digest)?;
        Ok(left)
    }
}

/// What is said about an entry before it.
#[derive(Default)]
struct Extended {
    path: Option<String>,
    size: Option<u64>,
    /// Whether anything was said, be it of no consequence.
    any: bool,
}

/// Reads all entries of an archive.
fn entries(stream: &mut Stream<'_>, limits: &Limits, each: &mut Each<'_>) -> Result<(), ReleaseError> {
    let mut paths = Paths::default();
    let mut count = 0_usize;
    let mut extended = Extended::default();
    loop {
        let mut block = [0; BLOCK];
        if stream.read(&mut block)? < BLOCK {
            return Err(stream.corrupt("its archive is cut off: it ends without two empty blocks"));
        }
        if block.iter().all(|byte| *byte == 0) {
            if extended.any {
                return Err(
                    stream.malformed("an extended header is the last entry, expected the one that it speaks of")
                );
            }
            return end(stream);
        }
        let header = Header::read(&block).map_err(|why| stream.malformed(format!("entry {}: {why}", count + 1)))?;
        if matches!(header.kind, b'x' | b'g' | b'L') {
            count = if header.kind == b'g' { count + 1 } else { count };
            within(stream, count, limits)?;
            if header.size > LONGEST_EXTENSION {
                let (found, limit) = (header.size, LONGEST_EXTENSION);
                let what = format!("an extended header of {}", stream.what);
                return Err(ReleaseError::TooLarge { what, found, limit, unit: "bytes" });
            }
            let content = stream.content(header.size)?;
            if extended.any {
                return Err(stream.malformed("two extended headers speak of one entry, expected one"));
            }
            extended = extension(header.kind, &content).map_err(|why| stream.malformed(why))?;
            continue;
        }
        count += 1;
        within(stream, count, limits)?;
        let Extended { path, size, .. } = std::mem::take(&mut extended);
        let path = match path {
            Some(path) => path,
            None => header.path().map_err(|why| stream.malformed(format!("entry {count}: {why}")))?,
        };
        let bad = |stream: &Stream<'_>, why: &str| stream.malformed(format!("entry `{}` {why}", clip(&path)));
        let folder = match header.kind {
            b'0' | 0 => false,
            b'5' => true,
            kind => {
                let why = format!("is {}, expected a regular file or a folder", named(kind));
                return Err(bad(stream, &why));
            }
        };
        if header.mode & 0o7000 != 0 {
            return Err(bad(
                stream,
                &format!("has mode {:o}, expected none of setuid, setgid and sticky", header.mode),
            ));
        }
        if size.is_some_and(|size| size != header.size) {
            return Err(bad(stream, "has two sizes, expected one"));
        }
        let normal = normal(&path, folder).map_err(|why| bad(stream, why))?;
        paths.add(normal, folder).map_err(|why| bad(stream, why))?;
        if folder {
            if header.size != 0 {
                return Err(bad(stream, "is a folder with content, expected none"));
            }
            continue;
        }
        if header.size > limits.file as u64 {
            let (found, limit) = (header.size, limits.file as u64);
            let what = format!("`{}` in {}", clip(&path), stream.what);
            return Err(ReleaseError::TooLarge { what, found, limit, unit: "bytes" });
        }
        let content = stream.content(header.size)?;
        each(normal, content)?;
    }
}

fn within(stream: &Stream<'_>, count: usize, limits: &Limits) -> Result<(), ReleaseError> {
    if count <= limits.entries {
        return Ok(());
    }
    let (found, limit) = (count as u64, limits.entries as u64);
    Err(ReleaseError::TooLarge { what: stream.what.clone(), found, limit, unit: "entries" })
}

/// What follows the first empty block: another one, and nothing but zeros.
fn end(stream: &mut Stream<'_>) -> Result<(), ReleaseError> {
    let mut block = [0; BLOCK];
    let mut blocks = 1_u64;
    loop {
        let read = stream.read(&mut block)?;
        let some = block.get(..read).unwrap_or_default();
        if some.iter().any(|byte| *byte != 0) {
            return Err(stream.malformed("data follows the end of its archive, expected none"));
        }
        if read < BLOCK {
            break;
        }
        blocks += 1;
    }
    if blocks < 2 {
        return Err(stream.corrupt("its archive is cut off: it ends without two empty blocks"));
    }
    Ok(())
}

/// What else entries can be.
fn named(kind: u8) -> String {
    match kind {
        b'1' => "a hard link".to_owned(),
        b'2' => "a symbolic link".to_owned(),
        b'3' => "a character device".to_owned(),
        b'4' => "a block device".to_owned(),
        b'6' => "a pipe".to_owned(),
        b'7' => "a contiguous file".to_owned(),
        b'K' => "the name of a link".to_owned(),
        b'S' => "a sparse file".to_owned(),
        b'M' => "the rest of a file of another volume".to_owned(),
        b'V' => "the label of a volume".to_owned(),
        b'D' | b'N' => "a list of names".to_owned(),
        kind if kind.is_ascii_graphic() => format!("of type `{}`", char::from(kind)),
        kind => format!("of type {kind:#04x}"),
    }
}

/// The path as it is compared and given on. Folders end with a slash, and both may begin with `./`.
fn normal(path: &str, folder: bool) -> Result<&str, &'static str> {
    let mut path = path;
    if path.len() > LONGEST_PATH {
        return Err("has a path of more than 512 bytes");
    }
    if path.starts_with('/') {
        return Err("has an absolute path, expected one inside the archive");
    }
    if path.chars().any(|c| c.is_control() || c == '\\') {
        return Err("has a path with control characters or backslashes, expected none");
    }
    if folder {
        path = path.strip_suffix('/').unwrap_or(path);
    }
    if folder && path == "." {
        return Ok("");
    }
    path = path.strip_prefix("./").unwrap_or(path);
    let drive = |first: &str| matches!(first.as_bytes(), [letter, b':'] if letter.is_ascii_alphabetic());
    if path.split('/').next().is_some_and(drive) {
        return Err("has an absolute path, expected one inside the archive");
    }
    for part in path.split('/') {
        match part {
            ".." => return Err("has a path that leaves the archive, expected one inside it"),
            "" | "." => return Err("has a path with an empty part, expected none"),
            _ => {}
        }
    }
    Ok(path)
}

/// The paths that were seen, and whether each is a folder.
#[derive(Default)]
struct Paths(BTreeMap<String, bool>);

impl Paths {
    fn add(&mut self, path: &str, folder: bool) -> Result<(), &'static str> {
        if self.0.contains_key(path) {
            return Err("stands twice, expected each name once");
        }
        let above = path.char_indices().filter(|(_, c)| *c == '/').filter_map(|(i, _)| path.get(..i));
        for above in above {
            if self.0.get(above) == Some(&false) {
                return Err("is inside of something that is a file, expected a folder");
            }
        }
        if !folder {
            let inside = format!("{path}/");
            let next = self.0.range(inside.clone()..).next();
            if next.is_some_and(|(next, _)| next.starts_with(&inside)) {
                return Err("is a file where there was a folder, expected one of both");
            }
        }
        self.0.insert(path.to_owned(), folder);
        Ok(())
    }
}

/// The fields of a header that matter.
struct Header {
    name: Vec<u8>,
    prefix: Vec<u8>,
    mode: u64,
    size: u64,
    kind: u8,
}

impl Header {
    fn read(block: &[u8; BLOCK]) -> Result<Self, String> {
        let field = |from: usize, length: usize| block.get(from..from + length).unwrap_or_default();
        let number = |what: &str, bytes: &[u8]| number(bytes).ok_or_else(|| format!("its {what} is not a number"));
        let wanted = number("checksum", field(148, 8))?;
        let sum = |byte: fn(u8) -> i64| -> i64 {
            let outside = |i: usize| !(148..156).contains(&i);
            block.iter().enumerate().map(|(i, b)| if outside(i) { byte(*b) } else { i64::from(b' ') }).sum()
        };
        // Some writers took bytes for signed numbers.
        let sums = [sum(<i64 as From<u8>>::from), sum(|byte| i64::from(byte.cast_signed()))];
        if !sums.iter().any(|sum| u64::try_from(*sum) == Ok(wanted)) {
            return Err("its header has a wrong checksum".to_owned());
        }
        let prefix = match (field(257, 6), field(263, 2)) {
            (b"ustar\0", _) => text(field(345, 155)),
            // GNU's own format has other things there, and so has the oldest one.
            (b"ustar ", b" \0") | (b"\0\0\0\0\0\0", _) => &[][..],
            _ => return Err("its header is of no known format".to_owned()),
        };
        Ok(Self {
            name: text(field(0, 100)).to_vec(),
            prefix: prefix.to_vec(),
            mode: number("mode", field(100, 8))?,
            size: number("size", field(124, 12))?,
            kind: field(156, 1).first().copied().unwrap_or_default(),
        })
    }

    fn path(&self) -> Result<String, String> {
        let mut bytes = self.prefix.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(&self.name);
        String::from_utf8(bytes).map_err(|_| "its path is not UTF-8".to_owned())
    }
}

/// What comes before the first zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number in octal digits, or in GNU's binary form.
fn number(bytes: &[u8]) -> Option<u64> {
    if let Some((0x80, digits)) = bytes.split_first() {
        // What does not fit is beyond every limit.
        let more = |number: u64, byte: &u8| number.checked_mul(256).map(|number| number + u64::from(*byte));
        return Some(digits.iter().try_fold(0, more).unwrap_or(u64::MAX));
    }
    let blank = |byte: &u8| matches!(*byte, b' ' | 0);
    let start = bytes.iter().position(|byte| *byte != b' ').unwrap_or(bytes.len());
    let rest = bytes.get(start..)?;
    let end = rest.iter().position(blank).unwrap_or(rest.len());
    let (digits, after) = rest.split_at_checked(end)?;
    if !after.iter().all(blank) {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| match byte {
        b'0'..=b'7' => number.checked_mul(8).map(|number| number + u64::from(byte - b'0')),
        _ => None,
    })
}

/// What an extended header says of the entry after it.
fn extension(kind: u8, content: &[u8]) -> Result<Extended, String> {
    // What holds for all entries says nothing about the next one.
    let mut extended = Extended { any: kind != b'g', ..Extended::default() };
    if kind == b'L' {
        let path = std::str::from_utf8(text(content)).map_err(|_| "a path is not UTF-8".to_owned())?;
        named_once(&mut extended, path)?;
        return Ok(extended);
    }
    for (key, value) in records(content)? {
        match key {
            "path" if kind == b'x' => named_once(&mut extended, value)?,
            "size" if kind == b'x' && extended.size.is_none() => {
                let digits = Some(value).filter(|value| value.bytes().all(|b| b.is_ascii_digit()));
                let size = digits.and_then(|digits| digits.parse::<u64>().ok());
                extended.size =
                    Some(size.ok_or_else(|| "an extended header has a size that is not a number".to_owned())?);
            }
            _ if is_harmless(key) => {}
            _ => return Err(format!("an extended header says `{}`, which could change what is unpacked", clip(key))),
        }
    }
    Ok(extended)
}

/// Notes the name of an entry, which has one.
fn named_once(extended: &mut Extended, path: &str) -> Result<(), String> {
    if extended.path.is_some() || path.is_empty() {
        return Err(format!("an entry has two names or none, the last is `{}`, expected one", clip(path)));
    }
    extended.path = Some(path.to_owned());
    Ok(())
}

/// What writers add and nobody here looks at.
fn is_harmless(key: &str) -> bool {
    const KEYS: [&str; 12] = [
        "atime",
        "comment",
        "ctime",
        "gid",
        "gname",
        "mtime",
        "uid",
        "uname",
        "SCHILY.dev",
        "SCHILY.fflags",
        "SCHILY.ino",
        "SCHILY.nlink",
    ];
    const FAMILIES: [&str; 3] = ["LIBARCHIVE.", "SCHILY.acl.", "SCHILY.xattr."];
    KEYS.contains(&key) || FAMILIES.iter().any(|family| key.starts_with(family))
}

/// The records of an extended header: `<length> <key>=<value>\n`, where the length counts all of it.
fn records(content: &[u8]) -> Result<Vec<(&str, &str)>, String> {
    let wrong = || "an extended header is not made of records `length key=value`".to_owned();
    let mut found = Vec::new();
    let mut rest = content;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ').ok_or_else(wrong)?;
        let digits = rest.get(..space).filter(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
        let length =
            digits.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|digits| digits.parse::<usize>().ok());
        let (record, after) = length.and_then(|length| rest.split_at_checked(length)).ok_or_else(wrong)?;
        let record = record.get(space + 1..).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(wrong)?;
        // Extended attributes may be any bytes; nobody looks at them, but for their names.
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        let (key, value) = record.split_at_checked(equals).ok_or_else(wrong)?;
        let key = std::str::from_utf8(key).map_err(|_| wrong())?;
        let value = match std::str::from_utf8(value.get(1..).unwrap_or_default()) {
            Ok(value) => value,
            Err(_) if is_harmless(key) => "",
            Err(_) => return Err(wrong()),
        };
        found.push((key, value));
        rest = after;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::oci::{Layout, gunzip};
    use crate::release::{documents, media_type};

    fn sample(names: &[&str]) -> Vec<Document> {
        let text: String = names
            .iter()
            .map(|name| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: '{name}'}}\ndata: {{a: b}}\n"))
            .collect();
        documents("a.yaml", text.as_bytes(), &Limits::default()).unwrap()
    }

    type Files = Vec<(String, Vec<u8>)>;

    fn unpacked(packed: &[u8]) -> Result<(u64, Files), ReleaseError> {
        let descriptor = Layout::default().blob(media_type::RESOURCES, packed.to_vec());
        let mut files = Vec::new();
        let mut each = |path: &str, content: Vec<u8>| {
            files.push((path.to_owned(), content));
            Ok(())
        };
        let bytes = unpack(&mut &*packed, &descriptor, &Limits::default(), &mut each)?;
        Ok((bytes, files))
    }

    #[test]
    fn a_layer_has_one_file_per_document_in_the_order_of_output() {
        let mut all = sample(&["b", "a"]);
        let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: z}}";
        all.extend(documents("b.yaml", namespace.as_bytes(), &Limits::default()).unwrap());
        let packed = pack(&all).unwrap().bytes;
        let (bytes, files) = unpacked(&packed).unwrap();
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["Namespace/z.yaml", "ConfigMap/a.yaml", "ConfigMap/b.yaml"]);
        let text = "apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  name: a\n";
        assert_eq!(files[1].1, text.as_bytes());
        assert_eq!(bytes, gunzip(&packed, 1 << 20).unwrap().len() as u64);
    }

    #[test]
    fn the_same_object_twice_is_refused() {
        let said = pack(&sample(&["a", "b", "a"])).unwrap_err().to_string();
        assert_eq!(said, "the layer holds `ConfigMap a` twice, expected each object once");
    }

    #[test]
    fn a_file_larger_than_what_is_read_at_once_arrives_whole() {
        let mut all = sample(&["a"]);
        let text: String =
            (0..300_000).map(|n: u32| char::from(b'a' + u8::try_from(n % 23 * n % 26).unwrap())).collect();
        all[0].value["data"]["a"] = text.as_str().into();
        let (_, files) = unpacked(&pack(&all).unwrap().bytes).unwrap();
        assert!(String::from_utf8(files[0].1.clone()).unwrap().contains(&text));
    }

    /// Gives a few bytes at a time, and is interrupted in between.
    struct Slow<'b>(&'b [u8], bool);

    impl Read for Slow<'_> {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(ErrorKind::Interrupted.into());
            }
            let count = room.len().min(3).min(self.0.len());
            let (now, later) = self.0.split_at(count);
            room[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    #[test]
    fn it_does_not_matter_in_what_pieces_bytes_come() {
        let packed = pack(&sample(&["a", "b"])).unwrap().bytes;
        let descriptor = Layout::default().blob(media_type::RESOURCES, packed.clone());
        let mut count = 0;
        let mut each = |_: &str, _: Vec<u8>| {
            count += 1;
            Ok(())
        };
        unpack(&mut Slow(&packed, false), &descriptor, &Limits::default(), &mut each).unwrap();
        assert_eq!(count, 2);
    }

    #[test]
    fn whoever_takes_the_files_can_stop_it() {
        let packed = pack(&sample(&["a", "b"])).unwrap().bytes;
        let descriptor = Layout::default().blob(media_type::RESOURCES, packed.clone());
        let mut each = |_: &str, _: Vec<u8>| Err(ReleaseError::TooMuchOutput { what: String::new(), most: 1 });
        let stopped = unpack(&mut packed.as_slice(), &descriptor, &Limits::default(), &mut each);
        assert!(matches!(stopped, Err(ReleaseError::TooMuchOutput { most: 1, .. })));
    }

    #[test]
    fn what_does_not_come_is_not_called_corrupt() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(ErrorKind::ConnectionReset.into())
            }
        }
        let descriptor = Layout::default().blob(media_type::RESOURCES, vec![1]);
        let read = unpack(&mut Broken, &descriptor, &Limits::default(), &mut |_, _| Ok(()));
        assert!(matches!(read, Err(ReleaseError::Read { .. })));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_noticed() {
        let packed = pack(&sample(&["a", "b"])).unwrap().bytes;
        let descriptor = Layout::default().blob(media_type::RESOURCES, packed.clone());
        let read = |bytes: &[u8]| unpack(&mut &*bytes, &descriptor, &Limits::default(), &mut |_, _| Ok(()));
        for end in 0..packed.len() {
            assert!(matches!(read(&packed[..end]), Err(ReleaseError::Size { .. })), "{end}");
        }
        for at in 0..packed.len() {
            let mut changed = packed.clone();
            changed[at] ^= 1;
            assert!(matches!(read(&changed), Err(ReleaseError::Digest { .. })), "{at}");
        }
        assert!(read(&packed).is_ok());
    }

    #[test]
    fn numbers_are_read_in_both_forms() {
        for (bytes, meant) in [
            (&b"0000644\0"[..], Some(0o644)),
            (&b"   644 \0"[..], Some(0o644)),
            (&b"\0\0\0\0"[..], Some(0)),
            (&b""[..], Some(0)),
            (&b"77777777777\0"[..], Some(0o77_777_777_777)),
            (&b"64 4"[..], None),
            (&b"-1\0"[..], None),
            (&b"8\0"[..], None),
            (&b"\x80\0\0\x02"[..], Some(2)),
            (&b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..], Some(u64::MAX)),
            (&b"\xff\xff\xff"[..], None),
        ] {
            assert_eq!(number(bytes), meant, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn the_order_of_documents_does_not_matter(names in prop::collection::btree_set("[a-z]{1,8}", 1..20), seed in any::<u64>()) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut shuffled = names.clone();
            shuffled.sort_by_key(|name| crate::digest::Digest::of(format!("{seed}{name}").as_bytes()));
            let packed = pack(&sample(&names)).unwrap();
            prop_assert_eq!(&packed, &pack(&sample(&shuffled)).unwrap());
            let (_, files) = unpacked(&packed.bytes).unwrap();
            prop_assert_eq!(files.len(), names.len());
        }

        #[test]
        fn nothing_that_is_packed_makes_it_panic(archive in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(unpacked(&gzip(&archive).unwrap()).is_err());
            let _ = unpacked(&archive);
        }
    }
}
