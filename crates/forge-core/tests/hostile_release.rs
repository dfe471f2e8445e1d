//! Releases that somebody made to do harm (SPEC section 8): archives built byte by byte, manifests and metadata, each with
//! the code and the words of its refusal. What is refused is refused within the caps, whatever it claims.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::io::Read;

use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::oci::{self, Annotations, Descriptor, gzip};
use forge_core::release::{
    ENVIRONMENT, Limits, Manifest, ReleaseError, ReleaseMetadata, documents, media_type, unpack,
};
use serde_json::{Value, json};

const BLOCK: usize = 512;

/// A header, before its checksum.
struct Header([u8; BLOCK]);

impl Header {
    fn new(name: &[u8], kind: u8, size: u64) -> Self {
        let mut header = Self([0; BLOCK]);
        header.put(0, name);
        header.put(100, b"0000644\0");
        header.put(108, b"0000000\0");
        header.put(116, b"0000000\0");
        header.put(124, format!("{size:011o}\0").as_bytes());
        header.put(136, b"00000000000\0");
        header.put(156, &[kind]);
        header.put(257, b"ustar\0");
        header.put(263, b"00");
        header
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.put(at, bytes);
        self
    }

    fn mode(self, mode: &[u8; 8]) -> Self {
        self.with(100, mode)
    }

    /// The header with its checksum, and the content with what fills its last block.
    fn entry(mut self, content: &[u8]) -> Vec<u8> {
        self.put(148, b"        ");
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        self.put(148, format!("{sum:06o}\0 ").as_bytes());
        let mut entry = self.0.to_vec();
        entry.extend_from_slice(content);
        entry.resize(entry.len().next_multiple_of(BLOCK), 0);
        entry
    }
}

fn file(name: &str) -> Vec<u8> {
    entry(name, b'0', b"content")
}

fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    Header::new(name.as_bytes(), kind, content.len() as u64).entry(content)
}

fn folder(name: &str) -> Vec<u8> {
    entry(name, b'5', b"")
}

/// `<length> <key>=<value>\n`.
fn record(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}").into_bytes()
}

/// An extended header of one record, and the file of which it speaks.
fn pax(key: &str, value: &str) -> Vec<u8> {
    [entry("pax", b'x', &record(key, value)), file("a")].concat()
}

/// An extended header of these bytes, and the file of which it speaks.
fn raw_pax(content: &[u8]) -> Vec<u8> {
    [entry("pax", b'x', content), file("a")].concat()
}

fn end() -> Vec<u8> {
    vec![0; 2 * BLOCK]
}

/// A packed archive of these entries, whole.
fn packed(entries: &[Vec<u8>]) -> Vec<u8> {
    raw(&[&entries.concat()[..], &end()].concat())
}

fn raw(archive: &[u8]) -> Vec<u8> {
    gzip(archive).unwrap()
}

fn described(bytes: &[u8]) -> Descriptor {
    Descriptor {
        media_type: media_type::RESOURCES.to_owned(),
        digest: Digest::of(bytes),
        size: bytes.len() as u64,
        architecture: None,
        artifact_type: None,
        annotations: Annotations::new(),
    }
}

/// What was unpacked, or the refusal; what was given out never goes beyond the limits.
fn unpacked(bytes: &[u8], descriptor: &Descriptor, limits: &Limits) -> Result<Vec<String>, ReleaseError> {
    let mut paths = Vec::new();
    let mut total = 0;
    let mut each = |path: &str, content: Vec<u8>| {
        total += content.len() as u64;
        paths.push(path.to_owned());
        Ok(())
    };
    let read = unpack(&mut &*bytes, descriptor, limits, &mut each);
    assert!(total <= limits.extracted && paths.len() <= limits.entries);
    read.map(|_| paths)
}

fn assert_refused<T: std::fmt::Debug>(name: &str, read: Result<T, ReleaseError>, code: Code, why: &str) {
    match read {
        Ok(read) => panic!("{name}: was taken as {read:?}"),
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains(why), "{name}: said {said:?}, expected {why:?}");
            assert_eq!(error.code(), code, "{name}: {said}");
            assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{name}: {said:?}");
            assert!(said.len() < 1000, "{name}: {} bytes", said.len());
        }
    }
}

const MALFORMED: Code = Code::ReleaseMalformed;
const CORRUPT: Code = Code::ReleaseCorrupt;
const TOO_LARGE: Code = Code::ReleaseTooLarge;

#[test]
fn paths_types_modes_and_extensions_that_could_do_harm_are_refused() {
    let leaves = "leaves the archive";
    let absolute = "has an absolute path";
    let part = "an empty part";
    let characters = "control characters or backslashes";
    let records = "not made of records";
    let named = |name: &[u8]| Header::new(name, b'0', 0).entry(b"");
    let kind = |kind: u8| entry("a", kind, b"");
    let mode = |mode: &[u8; 8]| Header::new(b"a", b'0', 0).mode(mode).entry(b"");
    let prefix = |prefix: &[u8], name: &[u8]| Header::new(name, b'0', 0).with(345, prefix).entry(b"");
    let long = |path: &str| [entry("././@LongLink", b'L', format!("{path}\0").as_bytes()), file("a")].concat();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        // Paths.
        ("traversal", file("../evil.yaml"), leaves),
        ("traversal in the middle", file("a/../../evil.yaml"), leaves),
        ("traversal that comes back", file("a/../b.yaml"), leaves),
        ("traversal at the end", file("a/.."), leaves),
        ("traversal alone", file(".."), leaves),
        ("traversal after a point", file("./../evil.yaml"), leaves),
        ("traversal of a folder", folder("../evil/"), leaves),
        ("traversal by a prefix", prefix(b"..", b"evil"), leaves),
        ("traversal by a long name", long("../evil"), leaves),
        ("traversal by PAX", pax("path", "../evil"), leaves),
        ("absolute", file("/etc/passwd"), absolute),
        ("absolute with two slashes", file("//etc/passwd"), absolute),
        ("absolute folder", folder("/"), absolute),
        ("absolute by a prefix", prefix(b"/etc", b"passwd"), absolute),
        ("absolute by a long name", long("/etc/passwd"), absolute),
        ("absolute by PAX", pax("path", "/etc/passwd"), absolute),
        ("absolute after a point", file(".//etc/passwd"), part),
        ("drive", file("C:/evil.yaml"), absolute),
        ("drive after a point", file("./c:/evil.yaml"), absolute),
        ("backslashes", file("..\\evil.yaml"), characters),
        ("backslash in the middle", file("a\\b.yaml"), characters),
        ("line break", file("a\nb.yaml"), characters),
        ("escape", file("a\u{1b}[31m.yaml"), characters),
        ("zero by PAX", pax("path", "a\0b"), characters),
        ("two slashes", file("a//b.yaml"), part),
        ("point in the middle", file("a/./b.yaml"), part),
        ("point alone", file("."), part),
        ("file with a slash at its end", file("a/"), part),
        ("no name", named(b""), part),
        ("name that is not UTF-8", named(b"a\xff.yaml"), "its path is not UTF-8"),
        ("long name that is not UTF-8", [entry("l", b'L', b"\xff\0"), file("a")].concat(), "a path is not UTF-8"),
        ("path of 513 bytes", long(&"a".repeat(513)), "more than 512 bytes"),
        // Types.
        ("hard link", kind(b'1'), "is a hard link, expected a regular file or a folder"),
        ("hard link with content", entry("a", b'1', b"content"), "is a hard link"),
        ("symbolic link", Header::new(b"a", b'2', 0).with(157, b"/etc/passwd").entry(b""), "is a symbolic link"),
        ("character device", kind(b'3'), "is a character device"),
        ("block device", kind(b'4'), "is a block device"),
        ("pipe", kind(b'6'), "is a pipe"),
        ("contiguous file", kind(b'7'), "is a contiguous file"),
        ("sparse file", kind(b'S'), "is a sparse file"),
        ("sparse file of GNU", Header::new(b"a", b'S', 0).with(257, b"ustar  \0").entry(b""), "is a sparse file"),
        ("other volume", kind(b'M'), "is the rest of a file of another volume"),
        ("label", kind(b'V'), "is the label of a volume"),
        ("long name of a link", kind(b'K'), "is the name of a link"),
        ("list of names", kind(b'D'), "is a list of names"),
        ("old extended header", kind(b'X'), "is of type `X`"),
        ("unknown type", kind(b'Z'), "is of type `Z`"),
        ("type that is no letter", kind(0xfe), "is of type 0xfe"),
        ("link, then a file through it", [kind(b'2'), file("a/b")].concat(), "is a symbolic link"),
        ("folder with content", entry("a/", b'5', b"content"), "is a folder with content"),
        // Modes.
        ("setuid", mode(b"0004755\0"), "has mode 4755"),
        ("setgid", mode(b"0002755\0"), "has mode 2755"),
        ("sticky", mode(b"0001644\0"), "has mode 1644"),
        ("setuid folder", Header::new(b"a/", b'5', 0).mode(b"0004755\0").entry(b""), "has mode 4755"),
        ("setuid in binary", mode(b"\x80\0\0\0\0\0\x09\xed"), "has mode 4755"),
        ("mode that is no number", mode(b"rwxr-xr\0"), "its mode is not a number"),
        // What extended headers say.
        ("sparse by PAX", pax("GNU.sparse.major", "1"), "says `GNU.sparse.major`"),
        ("sparse name by PAX", pax("GNU.sparse.name", "../evil"), "says `GNU.sparse.name`"),
        ("real size by PAX", pax("SCHILY.realsize", "1"), "says `SCHILY.realsize`"),
        ("link by PAX", pax("linkpath", "/etc/passwd"), "says `linkpath`"),
        ("character set by PAX", pax("hdrcharset", "BINARY"), "says `hdrcharset`"),
        ("unknown by PAX", pax("evil", "1"), "says `evil`"),
        ("another size by PAX", pax("size", "3"), "has two sizes"),
        ("size by PAX that is no number", pax("size", "-1"), "size that is not a number"),
        ("size by PAX beyond all numbers", pax("size", &"9".repeat(40)), "size that is not a number"),
        ("two sizes by PAX", raw_pax(&[record("size", "7"), record("size", "7")].concat()), "says `size`"),
        ("no name by PAX", pax("path", ""), "two names or none"),
        ("two names by PAX", raw_pax(&[record("path", "a"), record("path", "b")].concat()), "two names or none"),
        ("name by PAX that is not UTF-8", raw_pax(b"10 path=\xff\n"), records),
        ("record without a length", raw_pax(b"path=a\n"), records),
        ("record of no length", raw_pax(b"0 path=a\n"), records),
        ("record of a length beyond its header", raw_pax(b"99 path=a\n"), records),
        ("record of a length beyond all numbers", raw_pax(format!("{} path=a\n", "9".repeat(40)).as_bytes()), records),
        ("record of a signed length", raw_pax(b"+9 path=a\n"), records),
        ("record cut short", raw_pax(b"5 path=a\n"), records),
        ("record without a value", raw_pax(b"7 path\n"), records),
        ("record without a line break", raw_pax(b"8 path=a"), records),
        ("global path", [entry("g", b'g', &record("path", "evil")), file("a")].concat(), "says `path`"),
        ("global size", [entry("g", b'g', &record("size", "1")), file("a")].concat(), "says `size`"),
        (
            "two extended headers",
            [entry("x", b'x', &record("mtime", "1")), pax("mtime", "2")].concat(),
            "two extended headers",
        ),
        ("long name and PAX", [entry("l", b'L', b"b\0"), pax("path", "c")].concat(), "two extended headers"),
        (
            "global header in between",
            [entry("x", b'x', &record("path", "b")), entry("g", b'g', &record("comment", "c")), file("a")].concat(),
            "two extended headers",
        ),
        ("extended header of nothing", entry("x", b'x', &record("path", "b")), "is the last entry"),
        // Names.
        ("file twice", [file("a"), file("a")].concat(), "stands twice"),
        ("file twice, once with a point", [file("a"), file("./a")].concat(), "stands twice"),
        ("file twice, once by PAX", [file("b"), pax("path", "b")].concat(), "stands twice"),
        ("folder twice", [folder("a/"), folder("a")].concat(), "stands twice"),
        ("root twice", [folder("./"), folder(".")].concat(), "stands twice"),
        ("file and folder of one name", [file("a"), folder("a/")].concat(), "stands twice"),
        ("folder and file of one name", [folder("a/"), file("a")].concat(), "stands twice"),
        ("file in a file", [file("a"), file("a/b/c")].concat(), "is inside of something that is a file"),
        (
            "file where others are",
            [file("a/b/c"), file("a-b"), file("a/b")].concat(),
            "is a file where there was a folder",
        ),
        // Headers.
        ("checksum", with_byte(file("a"), 0, b'b'), "wrong checksum"),
        ("checksum that is no number", with_byte(file("a"), 148, b'x'), "its checksum is not a number"),
        ("unknown format", Header::new(b"a", b'0', 0).with(257, b"evil!\0").entry(b""), "of no known format"),
        (
            "size that is no number",
            Header::new(b"a", b'0', 0).with(124, b"99999999999\0").entry(b""),
            "its size is not a number",
        ),
        ("negative size", Header::new(b"a", b'0', 0).with(124, &[0xff; 12]).entry(b""), "its size is not a number"),
        ("garbage", vec![b'x'; 4096], "its checksum is not a number"),
        ("entry after an empty block", [vec![0; BLOCK], file("a")].concat(), "data follows the end"),
    ];
    assert!(cases.len() >= 80, "{}", cases.len());
    for (name, entries, why) in cases {
        let bytes = packed(&[entries]);
        assert_refused(name, unpacked(&bytes, &described(&bytes), &Limits::default()), MALFORMED, why);
        // A good file before it does not help.
        let bytes = raw(&[&file("before")[..], &gunzipped(&bytes)].concat());
        assert_refused(name, unpacked(&bytes, &described(&bytes), &Limits::default()), MALFORMED, why);
    }
}

fn with_byte(mut bytes: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    bytes[at] = byte;
    bytes
}

fn gunzipped(bytes: &[u8]) -> Vec<u8> {
    oci::gunzip(bytes, 1 << 24).unwrap()
}

#[test]
fn archives_of_other_tools_are_taken() {
    let old = |name: &[u8]| Header::new(name, b'0', 7).with(257, &[0; 8]).with(156, &[0]).entry(b"content");
    let gnu = Header::new(b"gnu", b'0', 7).with(257, b"ustar  \0").with(345, b"not a prefix").entry(b"content");
    let attributes = raw_pax(&[record("mtime", "1.5"), b"25 SCHILY.xattr.a=\xff\xfe1234\n".to_vec()].concat());
    let entries = [
        entry("pax_global_header", b'g', &record("comment", "0123456789abcdef")),
        folder("./"),
        folder("./b/"),
        file("./b/c.yaml"),
        file("system:d.yaml"),
        old(b"old"),
        gnu,
        Header::new(b"name", b'0', 7).with(345, b"prefix").entry(b"content"),
        [
            entry("././@LongLink", b'L', format!("{}\0", "long/".repeat(60)).trim_end_matches("/\0").as_bytes()),
            file("x"),
        ]
        .concat(),
        [entry("pax", b'x', &[record("path", "pax"), record("size", "7")].concat()), file("y")].concat(),
        attributes,
        Header::new(b"binary", b'0', 7).with(124, b"\x80\0\0\0\0\0\0\0\0\0\0\x07").entry(b"content"),
        Header::new(b"e", b'0', 7).mode(b"0100644\0").entry(b"content"),
    ];
    // GNU tar fills up what it writes.
    let bytes = raw(&[entries.concat(), vec![0; 10_240]].concat());
    let long = "long/".repeat(60);
    let wanted = [
        "b/c.yaml",
        "system:d.yaml",
        "old",
        "gnu",
        "prefix/name",
        long.trim_end_matches('/'),
        "pax",
        "a",
        "binary",
        "e",
    ];
    assert_eq!(unpacked(&bytes, &described(&bytes), &Limits::default()).unwrap(), wanted);
}

#[test]
fn archives_that_are_cut_off_or_go_on_are_refused() {
    let whole = packed(&[file("a")]);
    let archive = gunzipped(&whole);
    let cut_off = "cut off";
    let follow = "follow the end of the compressed data";
    let length = whole.len();
    let cases: Vec<(&str, Vec<u8>, Code, &str)> = vec![
        ("nothing", Vec::new(), CORRUPT, cut_off),
        ("no gzip", b"not gzip at all".to_vec(), CORRUPT, "it is not gzip"),
        ("a tar that is not packed", archive.clone(), CORRUPT, "it is not gzip"),
        ("zlib", b"\x78\x9c\x03\x00\x00\x00\x00\x01".to_vec(), CORRUPT, "it is not gzip"),
        ("another method", with_byte(whole.clone(), 2, 7), CORRUPT, "it is not gzip"),
        ("reserved flags", with_byte(whole.clone(), 3, 0xe0), CORRUPT, "it is not gzip"),
        ("checksum of gzip", with_byte(whole.clone(), length - 8, whole[length - 8] ^ 1), CORRUPT, "it is not gzip"),
        ("length of gzip", with_byte(whole.clone(), length - 4, whole[length - 4] ^ 1), CORRUPT, "it is not gzip"),
        ("gzip without its end", whole[..length - 8].to_vec(), CORRUPT, cut_off),
        ("half of gzip", whole[..length / 2].to_vec(), CORRUPT, cut_off),
        ("only the header of gzip", whole[..10].to_vec(), CORRUPT, cut_off),
        ("gzip of nothing", raw(b""), CORRUPT, "without two empty blocks"),
        ("half a header", raw(&archive[..256]), CORRUPT, "without two empty blocks"),
        ("no content", raw(&archive[..512]), CORRUPT, "its archive is cut off"),
        ("half the content", raw(&archive[..515]), CORRUPT, "its archive is cut off"),
        ("half the padding", raw(&archive[..1000]), CORRUPT, "its archive is cut off"),
        ("no end", raw(&archive[..1024]), CORRUPT, "without two empty blocks"),
        ("half an end", raw(&archive[..1536]), CORRUPT, "without two empty blocks"),
        ("half a block too few", raw(&archive[..1900]), CORRUPT, "without two empty blocks"),
        ("two members", [&whole[..], &whole].concat(), CORRUPT, follow),
        ("an empty member", [&whole[..], &raw(b"")].concat(), CORRUPT, follow),
        ("one byte more", [&whole[..], b"x"].concat(), CORRUPT, follow),
        ("zeros", [&whole[..], &[0; 512]].concat(), CORRUPT, follow),
        ("much more", [&whole[..], &vec![7; 1 << 20]].concat(), CORRUPT, follow),
        ("an archive after the archive", raw(&[&archive[..], &archive].concat()), MALFORMED, "data follows the end"),
        ("a byte after the archive", raw(&[&archive[..], b"x"].concat()), MALFORMED, "data follows the end"),
    ];
    for (name, bytes, code, why) in cases {
        assert_refused(name, unpacked(&bytes, &described(&bytes), &Limits::default()), code, why);
    }
}

#[test]
fn what_is_promised_and_what_comes_must_be_the_same() {
    let bytes = packed(&[file("a")]);
    let good = described(&bytes);
    let limits = Limits::default();
    let size = |size: u64| Descriptor { size, ..good.clone() };
    let other = Descriptor { digest: Digest::of(b"other"), ..good.clone() };
    assert_refused("digest", unpacked(&bytes, &other, &limits), CORRUPT, "has digest `sha256:");
    assert_refused("too short", unpacked(&bytes, &size(good.size + 1), &limits), CORRUPT, "expected");
    assert_refused("too long", unpacked(&bytes, &size(good.size - 1), &limits), CORRUPT, "expected");
    assert_refused("nothing", unpacked(&bytes, &size(0), &limits), CORRUPT, "expected 0");
    let huge = size(limits.compressed + 1);
    assert_refused("beyond the cap", unpacked(&bytes, &huge, &limits), TOO_LARGE, "at most 104857600 are allowed");
    assert_refused(
        "all there is",
        unpacked(&bytes, &size(u64::MAX), &limits),
        TOO_LARGE,
        "at most 104857600 are allowed",
    );
    // What is wrong with other bytes than those that were promised is of no interest.
    let evil = packed(&[file("../evil")]);
    let descriptor = Descriptor { size: evil.len() as u64, ..good };
    assert_refused("both", unpacked(&evil, &descriptor, &limits), CORRUPT, "has digest `sha256:");
}

/// Never ends, and counts what was taken of it.
struct Endless(u64);

impl Read for Endless {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        room.fill(0x55);
        self.0 += room.len() as u64;
        Ok(room.len())
    }
}

#[test]
fn what_never_ends_is_read_no_further_than_promised() {
    let mut endless = Endless(0);
    let descriptor = Descriptor { size: 100_000, ..described(b"") };
    let read = unpack(&mut endless, &descriptor, &Limits::default(), &mut |_, _| Ok(()));
    assert_refused("endless", read, CORRUPT, "expected 100000");
    assert!(endless.0 < 300_000, "{}", endless.0);
}

#[test]
fn bombs_and_crowds_end_at_the_caps() {
    let small = Limits { extracted: 1 << 20, file: 1 << 18, entries: 100, ..Limits::default() };
    let many = |count: usize, of: &dyn Fn(usize) -> Vec<u8>| packed(&(0..count).map(of).collect::<Vec<_>>());
    let zeros = |length: usize| vec![0; length];
    let sized = |octal: &[u8; 12]| packed(&[Header::new(b"a", b'0', 0).with(124, octal).entry(b"")]);
    let unpacked_bytes = "unpacked bytes, at most 1048576";
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("one file too large", packed(&[entry("a", b'0', &zeros((1 << 18) + 1))]), "`a` in layer `sha256:"),
        ("many files", many(5, &|n| entry(&format!("f{n}"), b'0', &zeros(1 << 18))), unpacked_bytes),
        ("zeros after the end", raw(&[file("a"), zeros(2 << 20)].concat()), unpacked_bytes),
        ("many empty files", many(101, &|n| entry(&format!("f{n}"), b'0', b"")), "has 101 entries, at most 100"),
        ("many folders", many(101, &|n| folder(&format!("f{n}/"))), "has 101 entries, at most 100"),
        (
            "many global headers",
            many(101, &|_| entry("g", b'g', &record("comment", "x"))),
            "has 101 entries, at most 100",
        ),
        (
            "a global header too large",
            packed(&[entry("g", b'g', &zeros((64 << 10) + 1))]),
            "an extended header of layer",
        ),
        (
            "a name too large",
            packed(&[entry("l", b'L', &zeros((64 << 10) + 1)), file("a")]),
            "an extended header of layer",
        ),
        ("8 GiB in octal", sized(b"77777777777\0"), "has 8589934591 bytes, at most 262144"),
        ("8 GiB without a space", sized(b"777777777777"), "has 68719476735 bytes, at most 262144"),
        (
            "beyond all numbers",
            sized(b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            "has 18446744073709551615 bytes",
        ),
        (
            "an extended header of 8 GiB",
            packed(&[Header::new(b"x", b'x', 0o77_777_777_777).entry(b"")]),
            "an extended header",
        ),
    ];
    for (name, bytes, why) in cases {
        assert_refused(name, unpacked(&bytes, &described(&bytes), &small), TOO_LARGE, why);
    }
    // A thousand times what it takes on the wire.
    let bomb = packed(&(0..30).map(|n| entry(&format!("f{n}"), b'0', &zeros(1 << 18))).collect::<Vec<_>>());
    assert!(bomb.len() < 30 << 10, "{}", bomb.len());
    assert_refused("bomb", unpacked(&bomb, &described(&bomb), &small), TOO_LARGE, unpacked_bytes);
    let crowd = packed(&(0..20_001).map(|n| entry(&format!("f{n}"), b'0', b"")).collect::<Vec<_>>());
    let read = unpacked(&crowd, &described(&crowd), &Limits::default());
    assert_refused("crowd", read, TOO_LARGE, "has 20001 entries, at most 20000");
    let full = packed(&(0..20_000).map(|n| entry(&format!("f{n}"), b'0', b"")).collect::<Vec<_>>());
    assert_eq!(unpacked(&full, &described(&full), &Limits::default()).unwrap().len(), 20_000);
}

#[test]
fn documents_that_could_do_harm_are_refused() {
    let mut laughs = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for n in 1..30 {
        laughs.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(",")));
    }
    let deep_json = format!("{}1{}", "{\"a\":".repeat(65), "}".repeat(65));
    let deep_flow = format!("a: {}{}", "[".repeat(65), "]".repeat(65));
    let deep_blocks: String = (0..66).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    let object = |fields: &str| format!("apiVersion: v1\nkind: Pod\n{fields}\n");
    let cases: Vec<(&str, String, Code, &str)> = vec![
        ("a billion laughs", laughs, TOO_LARGE, "aliases expand"),
        ("depth of JSON", deep_json, TOO_LARGE, "nested deeper than 64 levels"),
        ("depth in flow style", deep_flow, TOO_LARGE, "nested deeper than 64 levels"),
        ("depth in block style", deep_blocks, TOO_LARGE, "nested deeper than 64 levels"),
        ("a key twice", object("metadata: {name: a}\nkind: Secret"), MALFORMED, "key `kind` stands twice"),
        ("a name that leaves", object("metadata: {name: ../../a}"), MALFORMED, "cannot be the name"),
        ("a name with a line break", object("metadata: {name: \"a\\nb\"}"), MALFORMED, "cannot be the name"),
        (
            "a name too long",
            object(&format!("metadata: {{name: {}}}", "a".repeat(254))),
            MALFORMED,
            "cannot be the name",
        ),
        ("a namespace that leaves", object("metadata: {name: a, namespace: ..}"), MALFORMED, "cannot be a namespace"),
        ("a made name", object("metadata: {generateName: a-}"), MALFORMED, "generateName"),
        ("no object", "just a text\n".to_owned(), MALFORMED, "it is not a mapping"),
        ("an alias of itself", "a: &a [*a]\n".to_owned(), MALFORMED, "evil.yaml"),
    ];
    for (name, text, code, why) in cases {
        assert_refused(name, documents("evil.yaml", text.as_bytes(), &Limits::default()), code, why);
    }
    // Two bytes in the file, and a hundred in memory.
    let dense = "0,".repeat(600_000);
    let json = format!(r#"{{"apiVersion":"v1","kind":"X","metadata":{{"name":"a"}},"x":[{dense}0]}}"#);
    let yaml = object(&format!("metadata: {{name: a}}\nx: [{dense}0]"));
    for text in [json, yaml] {
        let read = documents("evil.yaml", text.as_bytes(), &Limits::default());
        assert_refused("values", read, TOO_LARGE, "more than 524288 keys and values");
    }
    let bytes = vec![b'#'; (16 << 20) + 1];
    assert_refused("size", documents("evil.yaml", &bytes, &Limits::default()), TOO_LARGE, "at most 16777216");
    assert_refused("bytes", documents("evil.yaml", b"a: \xff\xfe", &Limits::default()), MALFORMED, "not UTF-8");
}

fn manifest() -> Value {
    let of = |media_type: &str, bytes: &[u8]| json!({"mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len()});
    let mut resources = of(media_type::RESOURCES, b"resources");
    resources["annotations"] = json!({ENVIRONMENT: "dev"});
    json!({
        "schemaVersion": 2, "mediaType": oci::media_type::MANIFEST, "artifactType": media_type::RELEASE,
        "config": of(oci::media_type::EMPTY, b"{}"), "layers": [of(media_type::METADATA, b"metadata"), resources],
    })
}

fn read_manifest(bytes: &[u8]) -> Result<Manifest, ReleaseError> {
    Manifest::read(bytes, &Digest::of(bytes), &Limits::default())
}

#[test]
fn manifests_that_are_not_those_of_a_release_are_refused() {
    assert!(read_manifest(manifest().to_string().as_bytes()).is_ok());
    let empty = Code::ReleaseEmpty;
    // Where, what is put there (nothing takes it away), and how it is refused.
    let cases: Vec<(&str, Option<Value>, Code, &str)> = vec![
        ("/schemaVersion", Some(json!(1)), MALFORMED, "schemaVersion is not 2"),
        ("/schemaVersion", Some(json!("2")), MALFORMED, "schemaVersion is not 2"),
        ("/schemaVersion", None, MALFORMED, "schemaVersion is not 2"),
        ("/mediaType", Some(json!(oci::media_type::INDEX)), MALFORMED, "mediaType is `application/vnd.oci.image.index"),
        ("/mediaType", Some(json!("application/vnd.docker.distribution.manifest.v2+json")), MALFORMED, "mediaType is"),
        ("/mediaType", Some(json!(null)), MALFORMED, "mediaType is not a text"),
        ("/manifests", Some(json!([])), MALFORMED, "an index of several images"),
        (
            "/artifactType",
            Some(json!("application/vnd.example")),
            MALFORMED,
            "artifactType is `application/vnd.example`",
        ),
        ("/artifactType", Some(json!("\u{1b}[31m")), MALFORMED, "artifactType is"),
        ("/artifactType", Some(json!("x".repeat(10_000))), MALFORMED, "artifactType is `xxx"),
        ("/artifactType", Some(json!(7)), MALFORMED, "artifactType is not a text"),
        ("/artifactType", None, MALFORMED, "artifactType is `application/vnd.oci.empty.v1+json`"),
        ("/config", None, MALFORMED, "config is not a descriptor"),
        ("/config", Some(json!([])), MALFORMED, "config is not a descriptor"),
        ("/layers", None, MALFORMED, "layers is not a list"),
        ("/layers", Some(json!({})), MALFORMED, "layers is not a list"),
        ("/layers", Some(json!([])), MALFORMED, "no layer is `application/vnd.forge.release.metadata"),
        ("/layers", Some(json!(["x"])), MALFORMED, "layers[0] is not a descriptor"),
        ("/layers", Some(json!(vec![0; 11])), TOO_LARGE, "has 11 layers, at most 10"),
        ("/layers", Some(json!([manifest()["layers"][0]])), empty, "the release holds no resources"),
        ("/layers", Some(json!([manifest()["layers"][1]])), MALFORMED, "no layer is"),
        ("/layers/1", Some(manifest()["layers"][0].clone()), MALFORMED, "layers[1] is a second layer of metadata"),
        ("/layers/2", Some(manifest()["layers"][1].clone()), MALFORMED, "a second layer for environment `dev`"),
        ("/layers/0/mediaType", None, MALFORMED, "layers[0] has no mediaType"),
        ("/layers/0/mediaType", Some(json!(oci::media_type::INDEX)), MALFORMED, "no layer is"),
        ("/layers/0/digest", None, MALFORMED, "layers[0] has no digest"),
        ("/layers/0/digest", Some(json!("sha256:12")), MALFORMED, "is not a digest"),
        ("/layers/0/digest", Some(json!(format!("sha512:{}", "0".repeat(128)))), MALFORMED, "is not a digest"),
        ("/layers/0/digest", Some(json!(Digest::of(b"x").as_str().to_uppercase())), MALFORMED, "is not a digest"),
        ("/layers/0/digest", Some(json!("sha256:../../../etc/passwd")), MALFORMED, "is not a digest"),
        ("/layers/0/size", None, MALFORMED, "layers[0] has no size"),
        ("/layers/0/size", Some(json!(-1)), MALFORMED, "layers[0] has no size"),
        ("/layers/0/size", Some(json!(1.5)), MALFORMED, "layers[0] has no size"),
        ("/layers/0/size", Some(json!("8")), MALFORMED, "layers[0] has no size"),
        ("/layers/0/size", Some(json!(1e30)), MALFORMED, "layers[0] has no size"),
        ("/layers/0/size", Some(json!((4 << 20) + 1)), TOO_LARGE, "has 4194305 bytes, at most 4194304"),
        ("/layers/1/size", Some(json!((100 << 20) + 1)), TOO_LARGE, "has 104857601 bytes, at most 104857600"),
        ("/layers/1/size", Some(json!(u64::MAX)), TOO_LARGE, "has 18446744073709551615 bytes"),
        ("/layers/1/urls", Some(json!(["https://evil.example.com/layer"])), MALFORMED, "layers[1] has urls"),
        ("/layers/1/urls", Some(json!("https://evil.example.com/layer")), MALFORMED, "layers[1] has urls"),
        ("/layers/1/annotations", None, MALFORMED, "layers[1] has no annotation"),
        ("/layers/1/annotations", Some(json!([])), MALFORMED, "annotations that are not a mapping"),
        ("/layers/1/annotations", Some(json!({ENVIRONMENT: 1})), MALFORMED, "is not a text"),
        ("/layers/1/annotations", Some(json!({ENVIRONMENT: ""})), MALFORMED, "must not be empty"),
        ("/layers/1/annotations", Some(json!({ENVIRONMENT: "../dev"})), MALFORMED, "is not a valid environment name"),
        ("/layers/1/annotations", Some(json!({ENVIRONMENT: "Dev"})), MALFORMED, "is not a valid environment name"),
        ("/layers/1/annotations", Some(json!({ENVIRONMENT: "a".repeat(64)})), MALFORMED, "has 64 characters"),
        ("/annotations", Some(json!({"a": {"b": "c"}})), MALFORMED, "annotation `a` of it is not a text"),
    ];
    for (at, value, code, why) in cases {
        let mut changed = manifest();
        let (above, field) = at.rsplit_once('/').unwrap();
        match (changed.pointer_mut(above).unwrap(), value) {
            (Value::Object(fields), Some(value)) => drop(fields.insert(field.to_owned(), value)),
            (Value::Object(fields), None) => drop(fields.remove(field)),
            (Value::Array(items), Some(value)) => {
                let at: usize = field.parse().unwrap();
                items.truncate(at);
                items.push(value);
            }
            (other, _) => panic!("{at}: {other}"),
        }
        assert_refused(at, read_manifest(changed.to_string().as_bytes()), code, why);
    }
}

#[test]
fn manifests_that_two_readers_would_read_differently_are_refused() {
    let good = manifest().to_string();
    let nested = format!("{{\"x\":{}{},{}", "[".repeat(64), "]".repeat(64), &good[1..]);
    let large = format!("{{\"x\":\"{}\",{}", "x".repeat(4 << 20), &good[1..]);
    let twice = format!("{{\"artifactType\":\"application/vnd.example\",{}", &good[1..]);
    let escaped = format!("{{\"artifact\\u0054ype\":\"application/vnd.example\",{}", &good[1..]);
    let layer_twice = good.replace("\"size\":9", "\"size\":9,\"size\":8");
    assert_ne!(layer_twice, good);
    let cases: Vec<(&str, Vec<u8>, Code, &str)> = vec![
        ("nothing", Vec::new(), MALFORMED, "it is not JSON"),
        ("no JSON", b"<html>".to_vec(), MALFORMED, "it is not JSON"),
        ("a list", b"[]".to_vec(), MALFORMED, "it is not an object"),
        ("a text", b"\"x\"".to_vec(), MALFORMED, "it is not an object"),
        ("cut off", good.as_bytes()[..good.len() - 1].to_vec(), MALFORMED, "it is not JSON"),
        ("two of them", format!("{good}{good}").into_bytes(), MALFORMED, "it is not JSON"),
        ("a byte more", format!("{good}x").into_bytes(), MALFORMED, "it is not JSON"),
        ("a byte order mark", format!("\u{feff}{good}").into_bytes(), MALFORMED, "it is not JSON"),
        ("not UTF-8", b"{\"a\":\"\xff\"}".to_vec(), MALFORMED, "it is not JSON"),
        ("a key twice", twice.into_bytes(), MALFORMED, "key `artifactType` stands twice"),
        ("a key twice, once in escapes", escaped.into_bytes(), MALFORMED, "key `artifactType` stands twice"),
        ("a key of a layer twice", layer_twice.into_bytes(), MALFORMED, "key `size` stands twice"),
        ("too deep", nested.into_bytes(), TOO_LARGE, "nested deeper than 64 levels"),
        ("far too deep", "[".repeat(1 << 20).into_bytes(), TOO_LARGE, "nested deeper than 64 levels"),
        ("too large", large.into_bytes(), TOO_LARGE, "at most 4194304 are allowed"),
    ];
    for (name, bytes, code, why) in cases {
        assert_refused(name, read_manifest(&bytes), code, why);
    }
    let read = Manifest::read(good.as_bytes(), &Digest::of(b"other"), &Limits::default());
    assert_refused("other bytes", read, CORRUPT, "the manifest of the release has digest `sha256:");
    let moved = good.replace("dev", "staging");
    let read = Manifest::read(moved.as_bytes(), &Digest::of(good.as_bytes()), &Limits::default());
    assert_refused("a layer for somebody else", read, CORRUPT, "has digest");
}

#[test]
fn metadata_that_is_not_that_of_a_release_is_refused() {
    let good = json!({
        "schemaVersion": 1, "project": "shop/api", "source": {"commit": "0".repeat(40)},
        "builder": {"name": "forge", "version": "0.1.0"},
        "resources": {"dev": {"digest": Digest::of(b"layer"), "documents": 1, "kinds": {"Pod": 1}}},
    });
    let limits = Limits::default();
    let read = |bytes: &[u8]| ReleaseMetadata::read(bytes, &described(bytes), &limits);
    assert!(read(good.to_string().as_bytes()).is_ok());
    let cases: Vec<(&str, Value, &str)> = vec![
        ("/schemaVersion", json!(2), "schemaVersion is 2, expected 1"),
        ("/schemaVersion", json!("1"), "schemaVersion is not 1"),
        ("/project", json!("../api"), "the metadata of the release"),
        ("/project", json!("api"), "repo/project"),
        ("/source/commit", json!("main"), "is not a commit"),
        ("/source", json!(null), "the metadata of the release"),
        ("/builder/name", json!("a\u{1b}]0;evil\u{7}"), "control characters"),
        ("/version", json!("1\n2"), "control characters"),
        ("/artifacts", json!([{"reference": "a"}]), "missing field `digest`"),
        ("/artifacts", json!([{"reference": "a", "digest": "latest"}]), "is not a digest"),
        ("/resources", json!({"../dev": good["resources"]["dev"]}), "is not the name of an environment"),
        ("/resources", json!([]), "the metadata of the release"),
        ("/resources/dev/digest", json!("sha256:0"), "is not a digest"),
        ("/resources/dev/documents", json!(-1), "the metadata of the release"),
        ("/resources/dev/kinds", json!({"a\u{9b}": 1}), "control characters"),
    ];
    for (at, value, why) in cases {
        let mut changed = good.clone();
        let (above, field) = at.rsplit_once('/').unwrap();
        changed.pointer_mut(above).unwrap().as_object_mut().unwrap().insert(field.to_owned(), value);
        assert_refused(at, read(changed.to_string().as_bytes()), MALFORMED, why);
    }
    let text = good.to_string();
    let twice = format!("{{\"project\":\"other/one\",{}", &text[1..]);
    assert_refused("twice", read(twice.as_bytes()), MALFORMED, "key `project` stands twice");
    let nested = format!("{{\"x\":{}{},{}", "[".repeat(64), "]".repeat(64), &text[1..]);
    assert_refused("deep", read(nested.as_bytes()), TOO_LARGE, "nested deeper");
    let large = format!("{text}{}", " ".repeat(4 << 20));
    assert_refused("large", read(large.as_bytes()), TOO_LARGE, "at most 4194304");
    let other = described(b"other");
    assert_refused("size", ReleaseMetadata::read(text.as_bytes(), &other, &limits), CORRUPT, "bytes, expected 5");
    let other = Descriptor { size: text.len() as u64, ..other };
    assert_refused("digest", ReleaseMetadata::read(text.as_bytes(), &other, &limits), CORRUPT, "has digest");
}
