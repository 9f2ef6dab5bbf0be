//! The function list, and the parts that each entry points to.

use crate::bytes::{Bytes, Span};
use crate::constant::Constants;
use crate::error::GroupProblem;
use crate::header::{Version, known_values};
use crate::tag::{Tags, take_group};
use crate::tag_name::TagName;
use crate::{Error, Library, Result};

known_values! {
    /// The kind of a function (tag `TYPE`).
    FunctionKind: u8 {
        /// A vertex function.
        Vertex = 0, "vertex";
        /// A fragment function.
        Fragment = 1, "fragment";
        /// A compute kernel.
        Kernel = 2, "kernel";
        /// A function of a dynamic library.
        Unqualified = 3, "unqualified";
        /// A `[[visible]]` or `[[stitchable]]` function.
        Visible = 4, "visible";
        /// A Core Image function.
        Extern = 5, "extern";
        /// An intersection function.
        Intersection = 6, "intersection";
        /// A mesh function.
        Mesh = 7, "mesh";
        /// An object function, which feeds mesh functions.
        Object = 8, "object";
    }
}

/// The module of a function: its bytes and their position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bitcode<'a> {
    /// First byte, from the start of the file.
    pub offset: u64,
    /// The module as stored: LLVM's wrapper header, the bitstream, padding.
    pub bytes: &'a [u8],
}

/// One entry of the function list. Everything is borrowed from the file.
///
/// A tag that a version of the format does not write is `None`; only the name is required.
#[derive(Debug, Clone)]
pub struct Function<'a> {
    /// Position in the list.
    pub index: u32,
    /// The position of the entry in the file.
    pub offset: u64,
    /// `NAME`: the host name.
    pub name: &'a str,
    /// `TYPE`.
    pub kind: Option<FunctionKind>,
    /// `HASH`: the SHA-256 of the bitcode as stored.
    pub sha256: Option<&'a [u8; 32]>,
    /// `VERS`, first half: the version of Apple's intermediate representation.
    pub air_version: Option<Version>,
    /// `VERS`, second half: the version of the Metal Shading Language.
    pub language_version: Option<Version>,
    /// `OFFT` and `MDSZ`: the module.
    pub bitcode: Option<Bitcode<'a>>,
    tags: Bytes<'a>,
    public: Option<Bytes<'a>>,
    private: Option<Bytes<'a>>,
    reflection: Option<Bytes<'a>>,
}

/// The tags that [`Function`] has fields or methods for.
const KNOWN: [TagName; 7] = [
    TagName(*b"NAME"),
    TagName(*b"TYPE"),
    TagName(*b"HASH"),
    TagName(*b"OFFT"),
    TagName(*b"VERS"),
    TagName(*b"MDSZ"),
    TagName(*b"RFLT"),
];

impl<'a> Function<'a> {
    /// All tags of the entry, known or not, in file order.
    pub fn tags(&self) -> Tags<'a> {
        Tags::new(self.tags, "a function's tags")
    }

    /// The tags that this crate does not decode (`LAYR`, `TESS`, `SOFF`, a newer version's).
    pub fn unknown_tags(&self) -> impl Iterator<Item = Result<crate::Tag<'a>>> + use<'a> {
        self.tags()
            .filter(|tag| !matches!(tag, Ok(tag) if KNOWN.contains(&tag.name)))
    }

    /// The tags of the function's public metadata: `CNST`; graphics functions have more.
    pub fn public_tags(&self) -> Tags<'a> {
        self.public.map_or_else(Tags::none, |group| {
            Tags::new(group, "a function's public metadata")
        })
    }

    /// The tags of the function's private metadata: `DEBI` and `DEPF` in debug builds.
    pub fn private_tags(&self) -> Tags<'a> {
        self.private.map_or_else(Tags::none, |group| {
            Tags::new(group, "a function's private metadata")
        })
    }

    /// The function constants (`CNST` in the public metadata), in file order.
    ///
    /// # Errors
    /// If the metadata before the constants cannot be read; a damaged constant is an item's error.
    pub fn constants(&self) -> Result<Constants<'a>> {
        for tag in self.public_tags() {
            let tag = tag?;
            if tag.name == TagName(*b"CNST") {
                return Constants::new(tag.bytes());
            }
        }
        Ok(Constants::none())
    }

    /// The function's entry in the reflection list (`RFLT`, `RBUF`), not decoded: a few alignment bytes, then a
    /// FlatBuffers table with the identifier `AIRR` that describes the arguments.
    ///
    /// # Errors
    /// If the entry does not start with an `RBUF` tag that fits into it.
    pub fn reflection(&self) -> Result<Option<&'a [u8]>> {
        let Some(mut group) = self.reflection else {
            return Ok(None);
        };
        // Unlike everywhere else, the length has four bytes here.
        let name = TagName(*group.array("a reflection tag")?);
        if name != TagName(*b"RBUF") {
            return Ok(None);
        }
        let size = group.u32("the reflection's length")?;
        Ok(Some(group.part(size.into(), "the reflection")?.as_slice()))
    }
}

/// Iterates over a library's functions in file order; ends after the first error.
///
/// Reading every function's metadata takes linear time even if a hostile file lets many functions share one large
/// group: the groups may claim no more bytes in total than the file has, or an item is [`Error::Overlap`].
#[derive(Debug, Clone)]
pub struct Functions<'a> {
    library: Library<'a>,
    rest: Bytes<'a>,
    next: u32,
    count: u32,
    metadata: u64,
}

impl<'a> Functions<'a> {
    pub(crate) fn new(library: Library<'a>, rest: Bytes<'a>, count: u32) -> Self {
        Self {
            library,
            rest,
            next: 0,
            count,
            metadata: 0,
        }
    }

    fn read(&mut self) -> Result<Function<'a>> {
        let offset = self.rest.offset();
        let tags = take_group(&mut self.rest, "a function")?;
        let mut function = Function {
            index: self.next,
            offset,
            name: "",
            kind: None,
            sha256: None,
            air_version: None,
            language_version: None,
            bitcode: None,
            tags,
            public: None,
            private: None,
            reflection: None,
        };
        let mut name = None;
        let mut offsets = None;
        let mut size = None;
        let mut reflection = None;
        for tag in function.tags() {
            let tag = tag?;
            match &tag.name.0 {
                b"NAME" => name = Some(tag.bytes().c_str("a function's name")?),
                b"TYPE" => function.kind = Some(tag.exactly::<1>()?[0].into()),
                b"HASH" => function.sha256 = Some(tag.exactly()?),
                b"OFFT" => {
                    tag.exactly::<24>()?;
                    let mut bytes = tag.bytes();
                    let at = bytes.offset();
                    offsets = Some((
                        at,
                        [
                            bytes.u64("an offset")?,
                            bytes.u64("an offset")?,
                            bytes.u64("an offset")?,
                        ],
                    ));
                }
                b"VERS" => {
                    tag.exactly::<8>()?;
                    let mut bytes = tag.bytes();
                    let mut version = || -> Result<Version> {
                        Ok(Version {
                            major: bytes.u16("a version")?,
                            minor: bytes.u16("a version")?,
                        })
                    };
                    function.air_version = Some(version()?);
                    function.language_version = Some(version()?);
                }
                b"MDSZ" => size = Some(tag.u64()?),
                b"RFLT" => reflection = Some((tag.bytes().offset(), tag.u64()?)),
                _ => {}
            }
        }
        function.name = name.ok_or(Error::MissingTag {
            index: self.next,
            offset,
            tag: TagName(*b"NAME"),
        })?;
        if let Some((at, [public, private, bitcode])) = offsets {
            let header = self.library.header;
            function.public =
                self.metadata_group(header.public_metadata, at, public, "public metadata")?;
            function.private =
                self.metadata_group(header.private_metadata, at + 8, private, "private metadata")?;
            if let Some(size) = size {
                let section = self.library.section(header.bitcode)?;
                let span = Span {
                    what: "a function's bitcode",
                    named_at: at + 16,
                    start: bitcode,
                    size,
                };
                let bytes = span.within(section, "the bitcode section")?;
                function.bitcode = Some(Bitcode {
                    offset: bytes.offset(),
                    bytes: bytes.as_slice(),
                });
            }
        }
        if let (Some((at, start)), Some(list)) = (reflection, self.library.reflection) {
            function.reflection = Some(group_at(
                list,
                at,
                start,
                "a function's reflection",
                "the reflection list",
            )?);
        }
        Ok(function)
    }

    /// The group at `start` of a metadata section; its size counts against the file's size.
    fn metadata_group(
        &mut self,
        section: crate::Section,
        named_at: u64,
        start: u64,
        what: &'static str,
    ) -> Result<Option<Bytes<'a>>> {
        // A library may lack the section.
        if section.size == 0 {
            return Ok(None);
        }
        let group = group_at(
            self.library.section(section)?,
            named_at,
            start,
            what,
            "its section",
        )?;
        self.metadata += group.remaining() + 4;
        let available = self.library.header.file_size;
        if self.metadata > available {
            return Err(Error::Overlap {
                what: "metadata",
                claimed: self.metadata,
                available,
            });
        }
        Ok(Some(group))
    }
}

/// The group that starts `start` bytes into `list`.
///
/// Newer tools include a metadata group's size field in its size, older ones (up to Metal 3.0) do not. The end mark
/// shows which.
fn group_at<'a>(
    list: Bytes<'a>,
    named_at: u64,
    start: u64,
    what: &'static str,
    container: &'static str,
) -> Result<Bytes<'a>> {
    let size = list.remaining().saturating_sub(start);
    let mut rest = Span {
        what,
        named_at,
        start,
        size,
    }
    .within(list, container)?;
    let offset = rest.offset();
    let size = rest.u32(what)?;
    [size.saturating_sub(4), size]
        .into_iter()
        .filter_map(|size| rest.clone().part(size.into(), what).ok())
        .find(|group| group.as_slice().ends_with(&TagName::END.0))
        .ok_or(Error::Group {
            what,
            offset,
            problem: GroupProblem::NoEnd {
                end: offset + u64::from(size),
            },
        })
}

impl<'a> Iterator for Functions<'a> {
    type Item = Result<Function<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.count {
            return None;
        }
        let function = self.read();
        match &function {
            Ok(_) => self.next += 1,
            Err(_) => self.count = self.next,
        }
        Some(function)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.count - self.next).ok())
    }
}
