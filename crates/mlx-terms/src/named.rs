//! Enums whose values each have a number and a name.

/// A name that is not a value of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be one of {expected}, found \"{found}\"")]
pub struct UnknownName {
    /// The kind of value.
    pub kind: &'static str,
    /// The valid names.
    pub expected: String,
    /// The name that was found.
    pub found: String,
}

/// Declares an enum with `ALL`, `name`, `Display` and `FromStr`. Its numbers start at 0 unless they are given.
#[macro_export]
#[doc(hidden)]
macro_rules! named {
    ($(#[$doc:meta])* $kind:literal $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident $(= $number:literal)? => $text:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum $name { $($(#[$variant_doc])* $variant $(= $number)?,)+ }

        impl $name {
            /// All values, sorted by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The value with this number.
            #[must_use]
            pub fn from_number(number: i32) -> Option<Self> {
                Self::ALL.iter().copied().find(|&value| value as i32 == number)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::UnknownName;

            fn from_str(found: &str) -> Result<Self, $crate::UnknownName> {
                Self::ALL.iter().copied().find(|value| value.name() == found).ok_or_else(|| $crate::UnknownName {
                    kind: $kind,
                    expected: Self::ALL.iter().map(|value| value.name()).collect::<Vec<_>>().join(", "),
                    found: found.to_owned(),
                })
            }
        }
    };
}
