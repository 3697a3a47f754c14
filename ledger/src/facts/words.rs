//! Closed lists of words: an enumeration that is written as text.

/// Defines an enumeration whose values are words: `ALL`, `as_str`, `Display` and serde by the word.
macro_rules! words {
    ($(#[$doc:meta])+ $kind:ident { $($(#[$meaning:meta])+ $variant:ident $word:literal,)+ }) => {
        $(#[$doc])+
        #[derive(
            Clone,
            Copy,
            Debug,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            serde::Serialize,
            serde::Deserialize,
        )]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum $kind { $($(#[$meaning])+ #[serde(rename = $word)] $variant,)+ }

        impl $kind {
            /// Every word, in its order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use words;
