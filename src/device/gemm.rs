//! Matrix products on the CPU: the `gemm` crate on tiles whose borders depend on the shapes alone.

use rayon::prelude::*;

/// A matrix inside a slice: element (i, j) is `data[i·row_stride + j·col_stride]`.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Mat<'a> {
    /// Row-major, rows back to back.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Mat<'a> {
        Mat::strided(data, rows, cols, cols)
    }

    /// Row-major, `row_stride` elements between the starts of rows.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Mat<'a> {
        if rows > 0 && cols > 0 {
            assert!((rows - 1) * row_stride + cols <= data.len(), "a {rows}×{cols} matrix in {} values", data.len());
        }
        Mat { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// The transpose.
    pub fn t(self) -> Mat<'a> {
        Mat { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

/// Multiply-adds that a task should have at least, so that handing it to a thread costs nothing beside it.
const TASK: usize = 2 << 20;
const MOST_TASKS: usize = 16;
/// Tile borders are multiples of this: the widest register block of the product's inner loop.
const TILE: usize = 48;

/// C = A·B, or C += A·B, on the calling thread. C is row-major with `row_stride`.
pub fn matmul(a: Mat, b: Mat, c: &mut [f32], row_stride: usize, accumulate: bool) {
    let (m, n) = shape_of(a, b, c, row_stride);
    // SAFETY: `shape_of` checked that all three matrices lie in their slices.
    unsafe { product(a, b, c.as_mut_ptr(), row_stride, (0, m), (0, n), accumulate) }
}

/// As [`matmul`], on the current thread pool.
pub fn par_matmul(a: Mat, b: Mat, c: &mut [f32], row_stride: usize, accumulate: bool) {
    let (m, n) = shape_of(a, b, c, row_stride);
    let tasks = (m * n * a.cols / TASK).clamp(1, MOST_TASKS);
    let longest = m.max(n);
    let tile = longest.div_ceil(tasks).next_multiple_of(TILE);
    if tile >= longest {
        // SAFETY: as in `matmul`.
        unsafe { product(a, b, c.as_mut_ptr(), row_stride, (0, m), (0, n), accumulate) }
        return;
    }
    let c = Shared(c.as_mut_ptr());
    (0..longest.div_ceil(tile)).into_par_iter().for_each(|i| {
        let c = &c;
        let span = (i * tile, ((i + 1) * tile).min(longest));
        let (rows, cols) = if m >= n { (span, (0, n)) } else { ((0, m), span) };
        // SAFETY: as in `matmul`; the tasks' tiles of C do not overlap.
        unsafe { product(a, b, c.0, row_stride, rows, cols, accumulate) }
    });
}

struct Shared(*mut f32);
// SAFETY: tasks write disjoint elements through it.
unsafe impl Sync for Shared {}

fn shape_of(a: Mat, b: Mat, c: &[f32], row_stride: usize) -> (usize, usize) {
    let (m, n) = (a.rows, b.cols);
    assert_eq!(a.cols, b.rows, "inner extents of a product");
    if m > 0 && n > 0 {
        assert!(row_stride >= n && (m - 1) * row_stride + n <= c.len(), "a {m}×{n} product in {} values", c.len());
    }
    (m, n)
}

/// The tile `rows` × `cols` (half-open) of the product.
///
/// # Safety
/// A, B and the tile of C lie within their allocations, and nothing else touches the tile meanwhile.
unsafe fn product(
    a: Mat,
    b: Mat,
    c: *mut f32,
    row_stride: usize,
    rows: (usize, usize),
    cols: (usize, usize),
    accumulate: bool,
) {
    let (m, n, k) = (rows.1 - rows.0, cols.1 - cols.0, a.cols);
    if m == 0 || n == 0 || (k == 0 && accumulate) {
        return;
    }
    // SAFETY: by the caller's promise every offset below stays in its allocation.
    unsafe {
        let c = c.add(rows.0 * row_stride + cols.0);
        if k == 0 {
            for i in 0..m {
                std::slice::from_raw_parts_mut(c.add(i * row_stride), n).fill(0.0);
            }
            return;
        }
        gemm::gemm(
            m,
            n,
            k,
            c,
            1,
            row_stride as isize,
            accumulate,
            a.data.as_ptr().add(rows.0 * a.row_stride),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr().add(cols.0 * b.col_stride),
            b.col_stride as isize,
            b.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
