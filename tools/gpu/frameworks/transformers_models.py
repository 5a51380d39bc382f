# SPDX-License-Identifier: Apache-2.0
"""transformers: models built from their configuration with random weights, nothing downloaded.
Each trains two steps and is then run."""

import checks
from checks import DEVICE, check

torch = checks.need("torch")
transformers = checks.need("transformers")
transformers.logging.set_verbosity_error()
torch.backends.cudnn.deterministic = True


def steps(model, batch, count=2):
    """Losses in bf16, then the model in evaluation mode."""
    model.train()
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-4), []
    for _ in range(count):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(**batch).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


def tokens(words, *shape, seed=1):
    return torch.randint(3, words, shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def generated(model, ids, **options):
    with torch.no_grad():
        return model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, pad_token_id=0, **options
        )


@check
def gpt2():
    torch.manual_seed(41)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=6)).to(DEVICE)
    ids = tokens(50000, 4, 128)
    return steps(model, {"input_ids": ids, "labels": ids}), generated(
        model, ids[:, :16], do_sample=False
    )


@check
def llama():
    torch.manual_seed(42)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=4000,
            hidden_size=256,
            intermediate_size=688,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=2,
            max_position_embeddings=512,
        )
    ).to(DEVICE)
    ids = tokens(4000, 2, 64)
    out = steps(model, {"input_ids": ids, "labels": ids}), generated(model, ids, do_sample=False)
    torch.manual_seed(43)
    half = model.to(torch.bfloat16)
    return (
        out,
        generated(half, ids, do_sample=True, top_k=20, temperature=0.8),
        generated(half, ids, num_beams=3, do_sample=False),
    )


@check
def bert():
    torch.manual_seed(44)
    model = transformers.BertForMaskedLM(transformers.BertConfig(num_hidden_layers=4)).to(DEVICE)
    ids = tokens(30000, 4, 128)
    mask = (
        torch.arange(128, device=DEVICE)[None, :]
        < torch.tensor([[128], [90], [50], [128]], device=DEVICE)
    ).long()
    losses = steps(model, {"input_ids": ids, "attention_mask": mask, "labels": ids})
    with torch.no_grad():
        return losses, model(input_ids=ids, attention_mask=mask).logits.argmax(-1)


@check
def vit():
    torch.manual_seed(45)
    model = transformers.ViTForImageClassification(
        transformers.ViTConfig(
            num_hidden_layers=4,
            hidden_size=384,
            num_attention_heads=6,
            intermediate_size=1536,
            num_labels=10,
        )
    ).to(DEVICE)
    images = torch.rand(4, 3, 224, 224, device=DEVICE)
    losses = steps(model, {"pixel_values": images, "labels": torch.arange(4, device=DEVICE)})
    with torch.no_grad():
        return losses, model(pixel_values=images).logits


@check
def t5():
    torch.manual_seed(46)
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=2000,
            d_model=256,
            d_ff=512,
            num_layers=3,
            num_heads=4,
            d_kv=64,
            decoder_start_token_id=0,
        )
    ).to(DEVICE)
    ids = tokens(2000, 2, 40)
    return steps(model, {"input_ids": ids, "labels": ids}), generated(model, ids, do_sample=False)


@check
def whisper():
    torch.manual_seed(47)
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=1000,
            d_model=128,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=256,
            decoder_ffn_dim=256,
            num_mel_bins=80,
            max_source_positions=200,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
    ).to(DEVICE)
    sound = torch.randn(2, 80, 400, device=DEVICE)
    return steps(model, {"input_features": sound, "labels": tokens(1000, 2, 20)})


checks.run()
