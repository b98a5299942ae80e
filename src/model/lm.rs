//! The language model: embedding, layers, final norm, head.

use std::cell::RefCell;
use std::rc::Rc;

use super::attention::AttentionMixer;
use super::block::{Context, Mixer, Names};
use super::cache::{Cache, LayerCache};
use super::config::{Config, Layer};
use super::mamba::MambaMixer;
use super::masks::{LayerMasks, Masks};
use super::mlp::MlpMixer;
use super::moe::MoeMixer;
use super::probe::{LayerProbe, Probe, Reading};
use super::products::StepProducts;
use crate::autograd::{ParamId, Params, Tape, Var};
use crate::ops::embedding::embedding;
use crate::ops::residual_add::residual_add;
use crate::ops::rms_norm::rms_norm;
use crate::tensor::{Segments, Tensor};
use crate::{Error, Result};

/// A layer: norm, mixer, residual.
struct Block {
    norm: ParamId,
    mixer: Box<dyn Mixer + Send + Sync>,
}

/// A `nemotron_h` model: the parent, a student, and (given masks) the supernet.
pub struct Lm {
    pub config: Config,
    pub params: Params,
    embeddings: ParamId,
    blocks: Vec<Block>,
    norm_f: ParamId,
    /// The embedding itself where they are tied.
    head: ParamId,
}

/// Tokens and what applies to them.
pub struct Input<'i> {
    /// `[R]`.
    pub tokens: &'i [u32],
    pub segments: &'i Segments,
    pub masks: Option<&'i Masks>,
    /// Whether backward recomputes each block instead of keeping its activations.
    pub recompute: bool,
    /// How the layers' products are quantised, where they are.
    pub products: Option<StepProducts>,
}

impl<'i> Input<'i> {
    /// Tokens of a model without masks.
    pub fn new(tokens: &'i [u32], segments: &'i Segments) -> Input<'i> {
        Input { tokens, segments, masks: None, recompute: false, products: None }
    }
}

/// What a forward pass gives.
pub struct Output {
    /// [R, d], after the final norm: what the head multiplies.
    pub hidden: Var,
    /// Per MoE layer in order: the experts' row offsets, u32 [E + 1], where the model computes; see [`Output::counts`].
    pub loads: Vec<Tensor>,
}

impl Output {
    /// Tokens that [`Output::loads`] routed to each expert, per MoE layer `[E]`.
    ///
    /// # Errors
    /// On a GPU, where the driver fails.
    pub fn counts(loads: &[Tensor]) -> Result<Vec<Vec<u32>>> {
        let offsets = Tensor::to_host_together(&loads.iter().collect::<Vec<_>>())?;
        let counts = |offsets: &Tensor| offsets.values::<u32>().windows(2).map(|w| w[1] - w[0]).collect();
        Ok(offsets.iter().map(counts).collect())
    }
}

impl Lm {
    /// `params` holds every tensor of `config` by its canonical name.
    pub fn new(config: Config, params: Params) -> Result<Lm> {
        let root = Names { params: &params, prefix: "backbone".into() };
        let embeddings = root.get("embeddings.weight")?;
        let norm_f = root.get("norm_f.weight")?;
        let head = if config.tie_word_embeddings {
            embeddings
        } else {
            params.find("lm_head.weight").ok_or_else(|| {
                Error::contract("model", "parameter", "no lm_head.weight", "a head, as the embeddings are not tied")
            })?
        };
        let mut blocks = Vec::with_capacity(config.layers.len());
        for (i, layer) in config.layers.iter().enumerate() {
            let names = Names { params: &params, prefix: format!("backbone.layers.{i}.mixer") };
            let mixer: Box<dyn Mixer + Send + Sync> = match layer {
                Layer::Mamba(sizes) => Box::new(MambaMixer::new(sizes, config.norm_eps, &names)?),
                Layer::Moe(sizes) => Box::new(MoeMixer::new(sizes, &names)?),
                Layer::Attention(sizes) => Box::new(AttentionMixer::new(sizes, &names)?),
                Layer::Mlp(_) => Box::new(MlpMixer::new(&names)?),
            };
            let layer = Names { params: &params, prefix: format!("backbone.layers.{i}") };
            blocks.push(Block { norm: layer.get("norm.weight")?, mixer });
        }
        Ok(Lm { config, params, embeddings, blocks, norm_f, head })
    }

    /// The hidden states of a batch. `'a`: the model outlives the tape, whose backward may run blocks again.
    pub fn forward<'a>(&'a self, tape: &Tape<'a>, input: &Input<'_>) -> Result<Output> {
        self.check_rows(input)?;
        let masks = input.masks;
        if let Some(masks) = masks.filter(|m| m.layers.len() != self.blocks.len()) {
            return Err(Error::contract("model", "masks", masks.layers.len(), format!("{} layers", self.blocks.len())));
        }
        let unmasked = LayerMasks::default();
        let mut loads = Vec::new();
        let hidden = masks.and_then(|m| m.hidden.as_ref());
        let mut h = embedding(tape, input.tokens, &tape.param(&self.params, self.embeddings), hidden)?;
        for i in 0..self.blocks.len() {
            let masks = masks.map_or(&unmasked, |m| &m.layers[i]);
            let products = input.products.and_then(|products| products.of_layer(i, self.blocks.len()));
            h = if input.recompute {
                self.recomputed_block(tape, i, h, masks, (input.segments, products), &mut loads)?
            } else {
                let ctx = Context { masks, products, ..self.context(input.segments, &unmasked) };
                self.block(tape, i, &h, &ctx, None, Some(&mut loads))?
            };
        }
        Ok(Output { hidden: self.final_norm(tape, &h, masks)?, loads })
    }

    /// The hidden states of tokens that continue cached sequences: segment s continues sequence `sequences[s]`.
    pub fn forward_cached(
        &self,
        tokens: &[u32],
        segments: &Segments,
        cache: &mut Cache,
        sequences: &[usize],
    ) -> Result<Tensor> {
        self.forward_watched(tokens, segments, cache, sequences, &mut |_| {})
    }

    /// [`Lm::forward_cached`], which calls `passed` after the embedding (`None`), after each layer, and after the final
    /// norm (`None`): for whoever measures layers apart.
    pub fn forward_watched(
        &self,
        tokens: &[u32],
        segments: &Segments,
        cache: &mut Cache,
        sequences: &[usize],
        passed: &mut dyn FnMut(Option<usize>),
    ) -> Result<Tensor> {
        self.check_rows(&Input::new(tokens, segments))?;
        if segments.count() != sequences.len() || sequences.iter().any(|s| *s >= cache.sequences) {
            let expected = format!("one below {} for each of {} segments", cache.sequences, segments.count());
            return Err(Error::contract("model", "sequences", sequences, expected));
        }
        let tape = Tape::inference();
        let masks = LayerMasks::default();
        let ctx = Context { sequences, ..self.context(segments, &masks) };
        let mut h = embedding(&tape, tokens, &tape.param(&self.params, self.embeddings), None)?;
        passed(None);
        for (i, layer) in cache.layers.iter_mut().enumerate() {
            h = self.block(&tape, i, &h, &ctx, Some(layer), None)?;
            passed(Some(i));
        }
        let hidden = self.final_norm(&tape, &h, None)?.into_value();
        passed(None);
        Ok(hidden)
    }

    /// The hidden states [R, d] of a batch, every activation on the way shown to `probe`.
    pub fn forward_probed(&self, tokens: &[u32], segments: &Segments, probe: &dyn Probe) -> Result<Tensor> {
        self.check_rows(&Input::new(tokens, segments))?;
        let tape = Tape::inference();
        let masks = LayerMasks::default();
        let mut h = embedding(&tape, tokens, &tape.param(&self.params, self.embeddings), None)?;
        for layer in 0..self.blocks.len() {
            let probe = Some(LayerProbe { layer, probe });
            let ctx = Context { probe, ..self.context(segments, &masks) };
            h = self.block(&tape, layer, &h, &ctx, None, None)?;
        }
        Ok(self.final_norm(&tape, &h, None)?.into_value())
    }

    /// The routing correction biases, MoE layer by MoE layer.
    pub fn routing_biases(&self) -> Vec<ParamId> {
        let biases = self.params.iter().filter(|(_, p)| p.name.ends_with("e_score_correction_bias"));
        biases.map(|(id, _)| id).collect()
    }

    /// The head's weight [V, d].
    pub fn head(&self, tape: &Tape<'_>) -> Var {
        tape.param(&self.params, self.head)
    }

    /// A weight that is where the model computes, and stored as its activations are.
    pub fn sample_weight(&self) -> &Tensor {
        self.params.weight(self.embeddings)
    }

    /// Logits [R, V] of every row, in f32: for tests and small batches. Losses work on hidden states and never store these.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let tape = Tape::inference();
        Ok(crate::ops::linear::linear_wide(&tape, &Var::constant(hidden.clone()), &self.head(&tape))?.into_value())
    }

    /// The surroundings of blocks in a plain pass.
    fn context<'c>(&'c self, segments: &'c Segments, masks: &'c LayerMasks) -> Context<'c> {
        Context { params: &self.params, segments, masks, sequences: &[], products: None, probe: None }
    }

    fn check_rows(&self, input: &Input<'_>) -> Result<()> {
        if input.segments.rows() != input.tokens.len() {
            let expected = format!("segments over {} rows", input.tokens.len());
            return Err(Error::contract("model", "segments", input.segments.rows(), expected));
        }
        Ok(())
    }

    fn block(
        &self,
        tape: &Tape<'_>,
        i: usize,
        h: &Var,
        ctx: &Context<'_>,
        cache: Option<&mut LayerCache>,
        loads: Option<&mut Vec<Tensor>>,
    ) -> Result<Var> {
        let block = &self.blocks[i];
        let (hidden, keep) = (ctx.masks.hidden.as_ref(), ctx.masks.keep.as_ref());
        let x = rms_norm(tape, h, &ctx.param(tape, block.norm), self.config.norm_eps, hidden)?;
        ctx.read(Reading::Normed(x.value()))?;
        let y = block.mixer.forward(tape, &x, ctx, cache, loads)?;
        let after = residual_add(tape, h, &y, hidden, keep)?;
        ctx.read(Reading::Stream { before: h.value(), after: after.value() })?;
        Ok(after)
    }

    /// [`Lm::block`], its activations dropped and computed again in backward. The masks' probabilities are inputs of the
    /// recorded node: inside, they are other variables.
    fn recomputed_block<'a>(
        &'a self,
        tape: &Tape<'a>,
        i: usize,
        h: Var,
        masks: &LayerMasks,
        (segments, products): (&Segments, Option<StepProducts>),
        loads: &mut Vec<Tensor>,
    ) -> Result<Var> {
        let (inner_masks, segments) = (masks.clone(), segments.clone());
        // Filled by the first run; the second, in backward, routes the same tokens again.
        let load = Rc::new(RefCell::new(None));
        let inner_load = load.clone();
        let mut inputs = vec![&h];
        inputs.extend(masks.keeps());
        let mut outputs = tape.checkpoint(&inputs, move |tape, inputs| {
            let masks = inner_masks.with_keeps(&inputs[1..]);
            let ctx = Context { products, ..self.context(&segments, &masks) };
            let mut load = Vec::new();
            let h = self.block(tape, i, &inputs[0], &ctx, None, Some(&mut load))?;
            inner_load.borrow_mut().get_or_insert(load);
            Ok(vec![h])
        })?;
        loads.extend(load.borrow().iter().flatten().cloned());
        Ok(outputs.pop().unwrap_or_else(|| unreachable!("one output")))
    }

    fn final_norm(&self, tape: &Tape<'_>, h: &Var, masks: Option<&Masks>) -> Result<Var> {
        let hidden = masks.and_then(|m| m.hidden.as_ref());
        rms_norm(tape, h, &tape.param(&self.params, self.norm_f), self.config.norm_eps, hidden)
    }
}
