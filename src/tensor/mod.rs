//! Contiguous arrays with a dtype and a shape.

mod gpu;
mod segments;

use std::fmt;
use std::sync::Arc;

use crate::Result;
use crate::device::pool::Buffer;
use half::bf16;

use gpu::OnGpu;

pub use segments::Segments;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    F32,
    Bf16,
    I64,
    U32,
    U8,
}

impl DType {
    pub fn bytes(self) -> usize {
        match self {
            DType::I64 => 8,
            DType::F32 | DType::U32 => 4,
            DType::Bf16 => 2,
            DType::U8 => 1,
        }
    }
}

/// Extents, outermost first. A scalar has none.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape(Vec<usize>);

impl Shape {
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Elements. Saturates: a shape beyond the address space is refused by the allocation.
    pub fn numel(&self) -> usize {
        self.0.iter().fold(1usize, |n, d| n.saturating_mul(*d))
    }

    /// The innermost extent; 1 for a scalar.
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// All extents but the innermost, multiplied: the rows of a matrix view.
    pub fn rows(&self) -> usize {
        let lead = self.0.len().saturating_sub(1);
        self.0[..lead].iter().fold(1usize, |n, d| n.saturating_mul(*d))
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape(dims.to_vec())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape(dims.to_vec())
    }
}

#[derive(Clone)]
enum Storage {
    F32(Arc<Buffer<f32>>),
    Bf16(Arc<Buffer<bf16>>),
    I64(Arc<Buffer<i64>>),
    U32(Arc<Buffer<u32>>),
    U8(Arc<Buffer<u8>>),
    Gpu(OnGpu),
}

/// A contiguous array, in this machine's memory or in a GPU's. Cloning shares the values; writing to a shared one copies it first.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    storage: Storage,
}

/// A plain number that tensors can hold.
pub trait Element: bytemuck::Pod + Send + Sync {
    const DTYPE: DType;
    #[doc(hidden)]
    fn wrap(buffer: Buffer<Self>, shape: Shape) -> Tensor;
    #[doc(hidden)]
    fn values(tensor: &Tensor) -> Option<&Arc<Buffer<Self>>>;
    #[doc(hidden)]
    fn values_mut(tensor: &mut Tensor) -> Option<&mut Arc<Buffer<Self>>>;
}

macro_rules! element {
    ($type:ty, $variant:ident) => {
        impl Element for $type {
            const DTYPE: DType = DType::$variant;
            fn wrap(buffer: Buffer<Self>, shape: Shape) -> Tensor {
                Tensor { shape, storage: Storage::$variant(Arc::new(buffer)) }
            }
            fn values(tensor: &Tensor) -> Option<&Arc<Buffer<Self>>> {
                if let Storage::$variant(values) = &tensor.storage { Some(values) } else { None }
            }
            fn values_mut(tensor: &mut Tensor) -> Option<&mut Arc<Buffer<Self>>> {
                if let Storage::$variant(values) = &mut tensor.storage { Some(values) } else { None }
            }
        }
    };
}
element!(f32, F32);
element!(bf16, Bf16);
element!(i64, I64);
element!(u32, U32);
element!(u8, U8);

impl Tensor {
    /// Zeros, f32.
    pub fn zeros(shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        f32::wrap(Buffer::zeroed(shape.numel()), shape)
    }

    /// f32 of any contents, which `write` fills in full.
    pub fn build(shape: impl Into<Shape>, write: impl FnOnce(&mut [f32])) -> Tensor {
        let shape = shape.into();
        let mut buffer = Buffer::unwritten(shape.numel());
        write(&mut buffer);
        f32::wrap(buffer, shape)
    }

    /// f32 of one value.
    pub fn full(shape: impl Into<Shape>, value: f32) -> Tensor {
        Tensor::build(shape, |values| values.fill(value))
    }

    pub fn scalar(value: f32) -> Tensor {
        Tensor::full([], value)
    }

    /// A tensor with these values; their number must be the shape's.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, values: &[T]) -> Tensor {
        let shape = shape.into();
        assert_eq!(shape.numel(), values.len(), "values for shape {shape:?}");
        T::wrap(Buffer::from_slice(values), shape)
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    pub fn dtype(&self) -> DType {
        match &self.storage {
            Storage::Gpu(storage) => storage.dtype,
            Storage::F32(_) => DType::F32,
            Storage::Bf16(_) => DType::Bf16,
            Storage::I64(_) => DType::I64,
            Storage::U32(_) => DType::U32,
            Storage::U8(_) => DType::U8,
        }
    }

    /// The values of a tensor of `T`. Panics on another dtype and on a GPU's tensor: an op checks before it reads, and
    /// [`Tensor::to_host`] is for everybody else.
    pub fn values<T: Element>(&self) -> &[T] {
        T::values(self).unwrap_or_else(|| panic!("values of {self:?} read as {:?}", T::DTYPE))
    }

    pub fn f32(&self) -> &[f32] {
        self.values::<f32>()
    }

    /// The values, to write. A tensor that shares them is left as it was (they are copied).
    pub fn values_mut<T: Element>(&mut self) -> &mut [T] {
        let dtype = self.dtype();
        let values = T::values_mut(self).unwrap_or_else(|| panic!("values of {dtype:?} written as {:?}", T::DTYPE));
        Arc::<Buffer<T>>::make_mut(values)
    }

    pub fn f32_mut(&mut self) -> &mut [f32] {
        self.values_mut::<f32>()
    }

    /// Whether writing would not copy.
    pub fn is_unique(&self) -> bool {
        match &self.storage {
            Storage::F32(v) => Arc::strong_count(v) == 1,
            Storage::Bf16(v) => Arc::strong_count(v) == 1,
            Storage::I64(v) => Arc::strong_count(v) == 1,
            Storage::U32(v) => Arc::strong_count(v) == 1,
            Storage::U8(v) => Arc::strong_count(v) == 1,
            Storage::Gpu(storage) => storage.is_unique(),
        }
    }

    /// The same values in another shape of as many elements.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        assert_eq!(shape.numel(), self.numel(), "{:?} as {shape:?}", self.shape);
        Tensor { shape, storage: self.storage.clone() }
    }

    /// A scalar's value.
    pub fn item(&self) -> f32 {
        assert_eq!(self.numel(), 1, "item of {:?}", self.shape);
        self.f32()[0]
    }

    /// self += other, element by element, where both are.
    pub fn add_assign(&mut self, other: &Tensor) -> Result<()> {
        assert_eq!(self.numel(), other.numel(), "{:?} += {:?}", self.shape, other.shape);
        if let Some(gpu) = self.gpu().cloned() {
            return self.add_on(&gpu, other);
        }
        let addend = other.f32();
        let values = self.f32_mut();
        crate::device::parallel::for_rows(values, 1, |first, block| {
            for (v, a) in block.iter_mut().zip(&addend[first..]) {
                *v += a;
            }
        });
        Ok(())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{:?}>{:?}", self.dtype(), self.shape)?;
        self.gpu().map_or(Ok(()), |gpu| write!(f, " on cuda:{}", gpu.ordinal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_to_a_shared_tensor_leaves_the_other_as_it_was() {
        let a = Tensor::from_slice([2], &[1.0f32, 2.0]);
        let mut b = a.clone();
        assert!(!b.is_unique());
        b.f32_mut()[0] = 5.0;
        assert_eq!((a.f32(), b.f32()), (&[1.0, 2.0][..], &[5.0, 2.0][..]));
        assert!(b.is_unique());
    }

    #[test]
    fn empty_extents() {
        let t = Tensor::zeros([3, 0]);
        assert_eq!((t.numel(), t.shape().rows(), t.shape().last()), (0, 3, 0));
        assert_eq!(Tensor::scalar(2.0).shape().rows(), 1);
    }
}
