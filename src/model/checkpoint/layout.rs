//! How tensors are laid out in safetensors files: which shard, which order, header, index.

use serde_json::{Map, Value, json};

use super::SINGLE_FILE;

/// A tensor that is to lie in a file.
pub trait Stored {
    fn name(&self) -> &str;
    /// As a safetensors header spells it.
    fn dtype(&self) -> &str;
    /// Bytes of one element, for alignment.
    fn element_bytes(&self) -> usize;
    fn shape(&self) -> &[usize];
    fn bytes(&self) -> u64;
}

/// Fills shards in the order of `tensors` up to `max_bytes` each (one that is larger alone gets a shard of its own), and
/// names them as Hugging Face libraries do. Within a shard wider elements come first, so that all are aligned.
pub fn shards<T: Stored>(tensors: Vec<T>, max_bytes: u64) -> Vec<(String, Vec<T>)> {
    let mut shards: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for tensor in tensors {
        match shards.last_mut() {
            Some(shard) if tensor.bytes() <= room => {
                room -= tensor.bytes();
                shard.push(tensor);
            }
            _ => {
                room = max_bytes.saturating_sub(tensor.bytes());
                shards.push(vec![tensor]);
            }
        }
    }
    let n = shards.len();
    let name = |i: usize| if n == 1 { SINGLE_FILE.into() } else { format!("model-{:05}-of-{n:05}.safetensors", i + 1) };
    shards.iter_mut().for_each(|shard| shard.sort_by_key(|tensor| std::cmp::Reverse(tensor.element_bytes())));
    shards.into_iter().enumerate().map(|(i, shard)| (name(i), shard)).collect()
}

/// The header of a file of `tensors` in this order, its length before it; their bytes follow one after the other.
pub fn header<T: Stored>(tensors: &[T]) -> Vec<u8> {
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({ "format": "pt" }));
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + tensor.bytes();
        let entry = json!({ "dtype": tensor.dtype(), "shape": tensor.shape(), "data_offsets": [offset, end] });
        header.insert(tensor.name().to_owned(), entry);
        offset = end;
    }
    let text = Value::Object(header).to_string();
    // The data that follows starts at a multiple of eight bytes.
    let length = text.len().next_multiple_of(8);
    let mut bytes = (length as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.resize(8 + length, b' ');
    bytes
}

/// `model.safetensors.index.json` of several shards.
pub fn index<T: Stored>(shards: &[(String, Vec<T>)]) -> Value {
    let total: u64 = shards.iter().flat_map(|(_, tensors)| tensors).map(Stored::bytes).sum();
    let mut places: Vec<(&str, &str)> =
        shards.iter().flat_map(|(file, tensors)| tensors.iter().map(|t| (t.name(), file.as_str()))).collect();
    places.sort();
    let map: Map<String, Value> = places.into_iter().map(|(name, file)| (name.into(), file.into())).collect();
    json!({ "metadata": { "total_size": total }, "weight_map": map })
}
