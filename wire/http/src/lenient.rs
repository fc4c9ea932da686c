//! [`lenient!`]: structs whose fields may be missing or `null`.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the default.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Declares a struct whose fields may be missing or `null`.
macro_rules! lenient {
    ($(#[$outer:meta])* pub struct $name:ident { $($(#[$inner:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                $(#[$inner])*
                #[serde(deserialize_with = "crate::lenient::or_default")]
                pub $field: $type,
            )*
        }
    };
}

pub(crate) use lenient;
