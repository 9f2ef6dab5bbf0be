//! Writes small containers for tests, with every part of the format that the reader needs.
#![allow(dead_code)]

use sha2::{Digest, Sha256};

/// A function that a test expects to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FunctionSpec {
    pub(crate) name: String,
    pub(crate) kind: u8,
    pub(crate) language: (u16, u16),
    pub(crate) bitcode: Vec<u8>,
    pub(crate) constants: Vec<(String, u8, u16)>,
    pub(crate) unknown: Vec<([u8; 4], Vec<u8>)>,
    pub(crate) reflection: Vec<u8>,
}

impl FunctionSpec {
    pub(crate) fn kernel(name: &str, bitcode: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            kind: 2,
            language: (3, 1),
            bitcode: bitcode.to_vec(),
            constants: Vec::new(),
            unknown: Vec::new(),
            reflection: b"AIRR".to_vec(),
        }
    }
}

/// The optional parts of the container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) container: (u16, u16),
    pub(crate) os: (u8, u16, u16),
    /// UUID, reflection list, install name; old versions have no extension.
    pub(crate) extension: bool,
    /// Whether the size of a metadata group excludes its own field, as with older tools.
    pub(crate) old_groups: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            container: (2, 7),
            os: (0x81, 14, 0),
            extension: true,
            old_groups: false,
        }
    }
}

pub(crate) fn tag(name: &[u8; 4], payload: &[u8]) -> Vec<u8> {
    let size = u16::try_from(payload.len()).expect("a tag's payload is below 64 KiB");
    [&name[..], &size.to_le_bytes(), payload].concat()
}

pub(crate) fn group(tags: &[u8]) -> Vec<u8> {
    let size = u32::try_from(tags.len() + 8).expect("a group is below 4 GiB");
    [&size.to_le_bytes()[..], tags, b"ENDT"].concat()
}

pub(crate) fn u64s(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// The sections that a header points to, in file order, and the bytes between them.
#[derive(Debug, Default, Clone)]
pub(crate) struct Parts {
    pub(crate) count: u32,
    pub(crate) groups: Vec<u8>,
    pub(crate) extension: Vec<u8>,
    pub(crate) public: Vec<u8>,
    pub(crate) private: Vec<u8>,
    pub(crate) bitcode: Vec<u8>,
    pub(crate) tail: Vec<u8>,
}

impl Parts {
    pub(crate) fn assemble(&self, shape: Shape) -> Vec<u8> {
        let list = 88u64;
        let extension = list + 4 + self.groups.len() as u64;
        let public = extension + self.extension.len() as u64;
        let private = public + self.public.len() as u64;
        let bitcode = private + self.private.len() as u64;
        let tail = bitcode + self.bitcode.len() as u64;
        let size = tail + self.tail.len() as u64;
        let mut file = b"MTLB\x01\x80".to_vec();
        file.extend(shape.container.0.to_le_bytes());
        file.extend(shape.container.1.to_le_bytes());
        file.extend([0, shape.os.0]);
        file.extend(shape.os.1.to_le_bytes());
        file.extend(shape.os.2.to_le_bytes());
        file.extend(u64s(&[
            size,
            list,
            self.groups.len() as u64,
            public,
            self.public.len() as u64,
            private,
            self.private.len() as u64,
            bitcode,
            self.bitcode.len() as u64,
        ]));
        file.extend(self.count.to_le_bytes());
        for part in [
            &self.groups,
            &self.extension,
            &self.public,
            &self.private,
            &self.bitcode,
            &self.tail,
        ] {
            file.extend(part);
        }
        file
    }
}

/// A well-formed container with these functions.
pub(crate) fn write(functions: &[FunctionSpec], shape: Shape) -> Vec<u8> {
    let mut parts = Parts {
        count: functions.len() as u32,
        ..Parts::default()
    };
    let mut reflection = (functions.len() as u32).to_le_bytes().to_vec();
    for function in functions {
        let offsets = [
            parts.public.len() as u64,
            parts.private.len() as u64,
            parts.bitcode.len() as u64,
        ];
        let mut tags = tag(b"NAME", &[function.name.as_bytes(), &[0]].concat());
        tags.extend(tag(b"TYPE", &[function.kind]));
        tags.extend(tag(b"HASH", &Sha256::digest(&function.bitcode)));
        tags.extend(tag(b"OFFT", &u64s(&offsets)));
        let (major, minor) = function.language;
        let versions: Vec<u8> = [2, 6, major, minor]
            .into_iter()
            .flat_map(u16::to_le_bytes)
            .collect();
        tags.extend(tag(b"VERS", &versions));
        tags.extend(tag(b"MDSZ", &u64s(&[function.bitcode.len() as u64])));
        if shape.extension {
            tags.extend(tag(b"RFLT", &u64s(&[reflection.len() as u64])));
        }
        for (name, payload) in &function.unknown {
            tags.extend(tag(name, payload));
        }
        parts.groups.extend(group(&tags));

        let mut public = Vec::new();
        if !function.constants.is_empty() {
            let mut payload = (function.constants.len() as u16).to_le_bytes().to_vec();
            for (name, kind, index) in &function.constants {
                payload.extend([name.as_bytes(), &[0, *kind]].concat());
                payload.extend(index.to_le_bytes());
                payload.push(1);
            }
            public = tag(b"CNST", &payload);
        }
        let metadata = |tags: &[u8]| {
            let mut group = group(tags);
            group[0] -= if shape.old_groups { 4 } else { 0 };
            group
        };
        parts.public.extend(metadata(&public));
        parts.private.extend(metadata(&[]));
        parts.bitcode.extend(&function.bitcode);

        let size = function.reflection.len() as u32;
        reflection.extend(group(
            &[b"RBUF", &size.to_le_bytes()[..], &function.reflection].concat(),
        ));
    }
    if shape.extension {
        let dynamic = [&tag(b"NAME", b"test.metallib\0")[..], b"ENDT"].concat();
        // Offsets after the bitcode: the extension's own size is fixed, so they can be computed first.
        let extension = |dynamic_at: u64| {
            [
                &tag(b"HDYN", &u64s(&[dynamic_at, dynamic.len() as u64]))[..],
                &tag(
                    b"RLST",
                    &u64s(&[dynamic_at + dynamic.len() as u64, reflection.len() as u64]),
                ),
                &tag(b"UUID", &[7; 16]),
                b"ENDT",
            ]
            .concat()
        };
        parts.extension = extension(0);
        let end = parts.assemble(shape).len() as u64;
        parts.extension = extension(end);
        parts.tail = [dynamic, reflection].concat();
    }
    parts.assemble(shape)
}
