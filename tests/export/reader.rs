//! Safetensors, e4m3 and e2m1 from their bytes, written from the formats' definitions.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

pub struct Tensor {
    pub file: String,
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// All tensors of a folder's safetensors files.
pub fn read(folder: &Path) -> BTreeMap<String, Tensor> {
    let mut tensors = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            let file = path.file_name().unwrap().to_str().unwrap().to_owned();
            let bytes = std::fs::read(&path).unwrap();
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let header: BTreeMap<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
            let data = &bytes[8 + length..];
            for (name, entry) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
                let number = |value: &Value| value.as_u64().unwrap() as usize;
                let [from, to] = [0, 1].map(|i| number(&entry["data_offsets"][i]));
                let tensor = Tensor {
                    file: file.clone(),
                    dtype: entry["dtype"].as_str().unwrap().into(),
                    shape: entry["shape"].as_array().unwrap().iter().map(number).collect(),
                    bytes: data[from..to].to_vec(),
                };
                assert!(tensors.insert(name.clone(), tensor).is_none(), "{name} twice");
            }
        }
    }
    tensors
}

/// Sign, four bits of exponent with bias 7, three of mantissa; 0x7F is NaN, there is no infinity.
pub fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    assert_ne!(code & 0x7F, 0x7F, "NaN");
    let magnitude =
        if exponent == 0 { mantissa / 8.0 * 2f64.powi(-6) } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if code >> 7 == 1 { -magnitude } else { magnitude }
}

const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Sign, two bits of exponent, one of mantissa.
pub fn e2m1(code: u8) -> f64 {
    let magnitude = E2M1[usize::from(code & 7)];
    if code & 8 == 0 { magnitude } else { -magnitude }
}

pub fn f32s(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
}

/// The upper half of an f32.
pub fn bf16s(bytes: &[u8]) -> Vec<f64> {
    let value = |b: &[u8]| f64::from(f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16));
    bytes.chunks_exact(2).map(value).collect()
}

/// Of a file's F32 or BF16 tensor.
pub fn plain(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype.as_str() {
        "F32" => f32s(&tensor.bytes),
        "BF16" => bf16s(&tensor.bytes),
        other => panic!("{other}"),
    }
}

/// A weight with the scales beside it.
pub struct Quantised {
    pub values: Vec<f64>,
    /// What each value's code is multiplied with.
    pub units: Vec<f64>,
    pub tensor_scale: f64,
}

/// `None` for a weight without scales.
pub fn dequantise(tensors: &BTreeMap<String, Tensor>, name: &str) -> Option<Quantised> {
    let module = name.strip_suffix(".weight")?;
    let weight = &tensors[name];
    let scalar = |leaf: &str| {
        let tensor = &tensors[&format!("{module}.{leaf}")];
        assert_eq!((tensor.dtype.as_str(), tensor.shape.as_slice()), ("F32", &[][..]), "{module}.{leaf}");
        f32s(&tensor.bytes)[0]
    };
    match weight.dtype.as_str() {
        "F8_E4M3" => {
            let scale = scalar("weight_scale");
            assert!(!tensors.contains_key(&format!("{module}.weight_scale_2")));
            let values: Vec<f64> = weight.bytes.iter().map(|code| e4m3(*code) * scale).collect();
            Some(Quantised { units: vec![scale; values.len()], values, tensor_scale: scale })
        }
        "U8" => {
            let (scales, of_tensor) = (&tensors[&format!("{module}.weight_scale")], scalar("weight_scale_2"));
            let [rows, bytes] = weight.shape[..] else { panic!("{:?}", weight.shape) };
            assert_eq!(scales.dtype, "F8_E4M3", "{module}");
            assert_eq!(scales.shape, [rows, bytes / 8], "{module}: a scale for 16 values, which are 8 bytes");
            let codes = weight.bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
            let units: Vec<f64> =
                (scales.bytes.iter()).flat_map(|code| std::iter::repeat_n(e4m3(*code) * of_tensor, 16)).collect();
            let values = codes.zip(&units).map(|(code, unit)| e2m1(code) * unit).collect();
            Some(Quantised { values, units, tensor_scale: of_tensor })
        }
        _ => None,
    }
}

/// Half of the distance between the neighbours of `x` among e4m3's values.
pub fn half_step_e4m3(x: f64) -> f64 {
    let exponent = x.abs().log2().floor().max(-6.0);
    2f64.powf(exponent - 4.0)
}

/// The same among e2m1's.
pub fn half_step_e2m1(x: f64) -> f64 {
    match x.abs() {
        x if x < 2.0 => 0.25,
        x if x < 4.0 => 0.5,
        _ => 1.0,
    }
}

#[test]
fn formats_are_their_definitions() {
    assert_eq!([0x7E, 0x08, 0x01, 0xC0].map(e4m3), [448.0, 2f64.powi(-6), 2f64.powi(-9), -2.0]);
    assert_eq!([1, 7, 9].map(e2m1), [0.5, 6.0, -0.5]);
    assert_eq!(half_step_e4m3(448.0), 16.0);
    assert_eq!(half_step_e4m3(0.0), 2f64.powi(-10));
}
