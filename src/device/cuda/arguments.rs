use super::embedded::abi;

/// A struct that kernels take, by its name in cuda/abi.h.
///
/// # Safety
/// The struct is plain data without padding, and NAME is its name.
pub unsafe trait Arguments: Copy {
    const NAME: &'static str;
}

macro_rules! arguments {
    ($($name:ident,)*) => {$(
        // SAFETY: cuda/abi.h orders members so that no struct has padding, and pins sizes and offsets.
        unsafe impl Arguments for abi::$name {
            const NAME: &'static str = stringify!($name);
        }
    )*};
}

arguments! {
    AdamWNorm,
    AdamWSquares,
    AdamWUpdate,
    AttentionBackward,
    AttentionForward,
    ColumnSum,
    ConvBackward,
    ConvForward,
    ConvState,
    CrossEntropy,
    CrossEntropyMean,
    DistillGrad,
    DistillMean,
    DistillSums,
    EmbeddingBackward,
    EmbeddingForward,
    EmbeddingMaskGrad,
    EmbeddingOffsets,
    EmbeddingSort,
    GatedGroupNormBackward,
    GatedGroupNormForward,
    GroupedGemm,
    GroupedRelu2,
    GroupedTiles,
    GroupedWeights,
    GumbelBackward,
    GumbelForward,
    GumbelNoise,
    Linear,
    LinearRelu2,
    LinearResidual,
    MaskGrad,
    MaskKeep,
    MoeCombineBackward,
    MoeCombineForward,
    MoeDispatch,
    MoePermuteBackward,
    MoePermuteForward,
    MoeRouteBackward,
    MoeRouteForward,
    Quantize,
    QuantizeAmax,
    QuantizeHadamard,
    QuantizeStretches,
    QuantizeTensorScale,
    QuantizedGroupedGemm,
    QuantizedGroupedWeights,
    QuantizedLinear,
    Relu2Backward,
    Relu2Forward,
    ResidualAddBackward,
    ResidualAddForward,
    RmsNormBackward,
    RmsNormForward,
    ScanBackward,
    ScanForward,
    ScanMaskGrad,
}
