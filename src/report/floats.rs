//! Numbers that JSON lacks: NaN and the infinities are the strings "NaN", "Infinity", "-Infinity", so that the report of a
//! run that went wrong can be read back too. For `#[serde(with = "floats")]`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<T: Floats, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.encode().serialize(serializer)
}

pub(super) fn deserialize<'de, T: Floats, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::Json::deserialize(deserializer).map(T::decode)
}

/// A float, or what holds floats.
pub(super) trait Floats {
    type Json: Serialize + DeserializeOwned;
    fn encode(&self) -> Self::Json;
    fn decode(json: Self::Json) -> Self;
}

impl Floats for f64 {
    type Json = Number;
    fn encode(&self) -> Number {
        Number(*self)
    }
    fn decode(json: Number) -> f64 {
        json.0
    }
}

impl<T: Floats> Floats for Option<T> {
    type Json = Option<T::Json>;
    fn encode(&self) -> Self::Json {
        self.as_ref().map(T::encode)
    }
    fn decode(json: Self::Json) -> Self {
        json.map(T::decode)
    }
}

impl<T: Floats> Floats for Vec<T> {
    type Json = Vec<T::Json>;
    fn encode(&self) -> Self::Json {
        self.iter().map(T::encode).collect()
    }
    fn decode(json: Self::Json) -> Self {
        json.into_iter().map(T::decode).collect()
    }
}

impl<T: Floats> Floats for BTreeMap<String, T> {
    type Json = BTreeMap<String, T::Json>;
    fn encode(&self) -> Self::Json {
        self.iter().map(|(key, value)| (key.clone(), value.encode())).collect()
    }
    fn decode(json: Self::Json) -> Self {
        json.into_iter().map(|(key, value)| (key, T::decode(value))).collect()
    }
}

pub(super) struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            v if v.is_finite() => serializer.serialize_f64(v),
            v if v.is_nan() => serializer.serialize_str("NaN"),
            v if v > 0.0 => serializer.serialize_str("Infinity"),
            _ => serializer.serialize_str("-Infinity"),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Number, E> {
        Ok(Number(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Number, E> {
        Ok(Number(value as f64))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Number, E> {
        Ok(Number(value as f64))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Number, E> {
        match value {
            "NaN" => Ok(Number(f64::NAN)),
            "Infinity" => Ok(Number(f64::INFINITY)),
            "-Infinity" => Ok(Number(f64::NEG_INFINITY)),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(value), &self)),
        }
    }
}
