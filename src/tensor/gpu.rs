//! Tensors in a GPU's memory: where they come from, go to, and how they are added up.

use std::sync::Arc;

use half::bf16;

use super::{DType, Element, Shape, Storage, Tensor};
use crate::Result;
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Cuda, CudaError, DeviceBuffer};
use crate::device::pool::Buffer;

/// A stretch of a block of device memory.
#[derive(Clone)]
pub(super) struct OnGpu {
    gpu: Arc<Cuda>,
    block: Arc<DeviceBuffer<u8>>,
    /// Bytes in front of the first element.
    first: usize,
    pub dtype: DType,
}

impl OnGpu {
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.block) == 1
    }
}

impl Tensor {
    /// The GPU that the tensor is on; `None` in this machine's memory.
    pub fn gpu(&self) -> Option<&Arc<Cuda>> {
        self.on_gpu().map(|storage| &storage.gpu)
    }

    fn on_gpu(&self) -> Option<&OnGpu> {
        if let Storage::Gpu(storage) = &self.storage { Some(storage) } else { None }
    }

    /// Any contents on a GPU: a kernel writes every element.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`].
    pub fn unwritten_on(gpu: &Arc<Cuda>, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        let block = Arc::new(gpu.buffer(shape.numel().saturating_mul(dtype.bytes()))?);
        Ok(Tensor { shape, storage: Storage::Gpu(OnGpu { gpu: gpu.clone(), block, first: 0, dtype }) })
    }

    /// Zeros on a GPU.
    ///
    /// # Errors
    /// As [`Tensor::unwritten_on`], and where the driver fails.
    pub fn zeros_on(gpu: &Arc<Cuda>, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        let mut block = gpu.buffer(shape.numel().saturating_mul(dtype.bytes()))?;
        block.fill_bytes(0)?;
        let block = Arc::new(block);
        Ok(Tensor { shape, storage: Storage::Gpu(OnGpu { gpu: gpu.clone(), block, first: 0, dtype }) })
    }

    /// Zeros of this dtype where `like` is.
    ///
    /// # Errors
    /// As [`Tensor::zeros_on`].
    pub fn zeros_beside(like: &Tensor, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor> {
        match like.gpu() {
            Some(gpu) => Tensor::zeros_on(gpu, dtype, shape),
            None => Ok(Tensor::zeros(shape)),
        }
    }

    /// A copy on a GPU; the tensor itself where it is on one.
    ///
    /// # Errors
    /// As [`Tensor::zeros_on`].
    pub fn to_gpu(&self, gpu: &Arc<Cuda>) -> Result<Tensor> {
        if self.gpu().is_some() {
            return Ok(self.clone());
        }
        let block = Arc::new(gpu.upload(self.bytes())?);
        let dtype = self.dtype();
        Ok(Tensor {
            shape: self.shape.clone(),
            storage: Storage::Gpu(OnGpu { gpu: gpu.clone(), block, first: 0, dtype }),
        })
    }

    /// A copy in this machine's memory, after all that was launched before; the tensor itself where it is there already.
    ///
    /// # Errors
    /// Where the driver fails, also for the fault of an earlier kernel.
    pub fn to_host(&self) -> Result<Tensor> {
        Ok(Tensor::to_host_together(&[self])?.remove(0))
    }

    /// [`Tensor::to_host`] of several, which waits once.
    ///
    /// # Errors
    /// As [`Tensor::to_host`].
    pub fn to_host_together(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
        let mut copies: Vec<Tensor> = tensors.iter().map(|tensor| tensor.like_on_host()).collect();
        let mut last = None;
        for (tensor, copy) in tensors.iter().zip(&mut copies) {
            let Some(OnGpu { block, first, .. }) = tensor.on_gpu() else { continue };
            last = Some(block);
            // SAFETY: the copies outlive the wait below, and are not looked at before; where a copy cannot be started, those
            // before it are waited for.
            if let Err(error) = unsafe { block.start_read(*first, copy.bytes_mut()) } {
                let _ = block.wait();
                return Err(error.into());
            }
        }
        last.map_or(Ok(()), |block| block.wait())?;
        Ok(copies)
    }

    /// A scalar's value, wherever it is.
    ///
    /// # Errors
    /// As [`Tensor::to_host`].
    pub fn read_item(&self) -> Result<f32> {
        Ok(self.to_host()?.item())
    }

    /// f32 as bf16 (to nearest), or back, on the host.
    pub fn cast(&self, dtype: DType) -> Tensor {
        match (self.dtype(), dtype) {
            (DType::F32, DType::Bf16) => {
                let values: Vec<bf16> = self.f32().iter().map(|v| bf16::from_f32(*v)).collect();
                Tensor::from_slice(self.shape.clone(), &values)
            }
            (DType::Bf16, DType::F32) => {
                let values: Vec<f32> = self.values::<bf16>().iter().map(|v| v.to_f32()).collect();
                Tensor::from_slice(self.shape.clone(), &values)
            }
            (from, to) if from == to => self.clone(),
            (from, to) => panic!("{from:?} cast to {to:?}"),
        }
    }

    /// The address of the first element, for a kernel's arguments. Null for a tensor in this machine's memory, which kernels
    /// cannot see.
    pub(crate) fn ptr<P>(&self) -> *mut P {
        match self.on_gpu() {
            Some(storage) => storage.block.ptr::<u8>().wrapping_add(storage.first).cast(),
            None => std::ptr::null_mut(),
        }
    }

    /// The elements from `first` on, as a tensor of this shape that shares them. On a GPU.
    pub(crate) fn part(&self, first: usize, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        assert!(first + shape.numel() <= self.numel(), "{shape:?} from {first} of {self:?}");
        let mut storage = self.on_gpu().unwrap_or_else(|| panic!("a part of {self:?}, which is not on a GPU")).clone();
        storage.first += first * storage.dtype.bytes();
        Tensor { shape, storage: Storage::Gpu(storage) }
    }

    /// Makes writing in place safe: a tensor that shares its values gets its own.
    pub(crate) fn make_unique(&mut self) -> Result<()> {
        let Some(storage) = self.on_gpu().filter(|storage| !storage.is_unique()) else { return Ok(()) };
        let mut own = Tensor::unwritten_on(&storage.gpu, storage.dtype, self.shape.clone())?;
        own.copy_in(0, self, 0, self.numel())?;
        *self = own;
        Ok(())
    }

    /// Copies `count` elements of `from`, beginning at `first`, to `to` of this tensor. Both on one GPU, or both not; a tensor
    /// that shares its values is written for all.
    pub(crate) fn copy_in(&mut self, to: usize, from: &Tensor, first: usize, count: usize) -> Result<()> {
        let size = self.dtype().bytes();
        assert!(self.dtype() == from.dtype(), "{self:?} from {from:?}");
        match (self.on_gpu(), from.on_gpu()) {
            (Some(ours), Some(theirs)) => {
                Ok(ours.block.copy(ours.first + to * size, &theirs.block, theirs.first + first * size, count * size)?)
            }
            _ => {
                let bytes = &from.bytes()[first * size..(first + count) * size];
                self.bytes_mut()[to * size..(to + count) * size].copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// self += other on a GPU; in place where nobody shares the values.
    pub(super) fn add_on(&mut self, gpu: &Arc<Cuda>, other: &Tensor) -> Result<()> {
        assert_eq!((self.dtype(), other.gpu().is_some()), (other.dtype(), true), "{self:?} += {other:?}");
        let out = match self.is_unique() {
            true => self.clone(),
            false => Tensor::unwritten_on(gpu, self.dtype(), self.shape.clone())?,
        };
        // Any rectangle will do: rows wide enough for a warp, and many.
        let count = self.numel();
        let width = [1024, 512, 256, 128].into_iter().find(|w| count.is_multiple_of(*w)).unwrap_or(self.shape.last());
        let limit = |_| CudaError::Limit {
            symbol: "residual_add_forward".into(),
            found: format!("{count} elements"),
            limit: "rows and columns below 2^32".into(),
        };
        let args = abi::ResidualAddForward {
            h: self.ptr(),
            x: other.ptr(),
            out: out.ptr(),
            rows: u32::try_from(count / width.max(1)).map_err(limit)?,
            width: u32::try_from(width).map_err(limit)?,
            ..Default::default()
        };
        let kind = if self.dtype() == DType::Bf16 { "bf16" } else { "f32" };
        // SAFETY: three tensors of as many elements on this device; the output may be the first.
        unsafe { gpu.launch(&format!("residual_add_forward_{kind}"), &args) }?;
        *self = out;
        Ok(())
    }

    /// Room on the host for a GPU's tensor; the tensor itself otherwise.
    fn like_on_host(&self) -> Tensor {
        fn room<T: Element>(shape: &Shape) -> Tensor {
            T::wrap(Buffer::zeroed(shape.numel()), shape.clone())
        }
        let Some(storage) = self.on_gpu() else { return self.clone() };
        match storage.dtype {
            DType::F32 => room::<f32>(&self.shape),
            DType::Bf16 => room::<bf16>(&self.shape),
            DType::I64 => room::<i64>(&self.shape),
            DType::U32 => room::<u32>(&self.shape),
            DType::U8 => room::<u8>(&self.shape),
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::F32(v) => bytemuck::cast_slice(v),
            Storage::Bf16(v) => bytemuck::cast_slice(v),
            Storage::I64(v) => bytemuck::cast_slice(v),
            Storage::U32(v) => bytemuck::cast_slice(v),
            Storage::U8(v) => v,
            Storage::Gpu(_) => panic!("bytes of {self:?} read on the host"),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self.dtype() {
            DType::F32 => bytemuck::cast_slice_mut(self.values_mut::<f32>()),
            DType::Bf16 => bytemuck::cast_slice_mut(self.values_mut::<bf16>()),
            DType::I64 => bytemuck::cast_slice_mut(self.values_mut::<i64>()),
            DType::U32 => bytemuck::cast_slice_mut(self.values_mut::<u32>()),
            DType::U8 => self.values_mut::<u8>(),
        }
    }
}
