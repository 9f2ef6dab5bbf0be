//! Enums whose values have a number and a name each.

/// A name that no value of its kind has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be one of {expected}, found \"{found}\"")]
pub struct UnknownName {
    /// What was named.
    pub kind: &'static str,
    /// The names that there are.
    pub expected: String,
    /// What was found instead.
    pub found: String,
}

/// Declares an enum with `ALL`, `name`, `Display` and `FromStr`. Its numbers count from 0 unless it gives them.
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
            /// Every value, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The value of that number.
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
