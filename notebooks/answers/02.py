# %% [markdown]
# # Worked answers: 02 · When a negative is not negative
#
# Each cell goes into `02_entailment_revision.ipynb`, in the place of the exercise's `...`. Other
# answers may be as good.

# %% [markdown]
# ## Exercise 1. Read a number

# %%
answer_1 = tuple(100 * metrics.f_score(share, 1.0) for share in (0.5, 0.043))

# %% [markdown]
# Precision is the share of entailed pairs, and recall 100 percent. For 4.3 percent, F0.5 = 1.25 ·
# 0.043 / (0.25 · 0.043 + 1) = 5.3 percent; on a test that is half true it would be 55.6. So an F0.5
# without this share says nothing.

# %% [markdown]
# ## Exercise 2. What a judge's praise is worth

# %%
by_judge = np.array([40, 50])
before_after = 0.7 * by_judge + 0.1 * (100 - by_judge)
answer_2 = (*before_after, before_after[0] - 0.1 * 10)

# %% [markdown]
# 0.7 · 40 + 0.1 · 60 = 34, and 0.7 · 50 + 0.1 · 50 = 40. In the worst case none of the new texts is
# true, and one in ten of those that they replace was: 33. So ten points by the judge may be six in
# truth, or a small loss. A retriever that learns from the judge's pairs learns its errors as well,
# so the shares need not stay as they are. Better ask people, logic, or a judge that was trained on
# other data. In the world's evidence no such flattery could be shown (P1).

# %% [markdown]
# ## Exercise 3. Two rates

# %%
answer_3 = ((0.01 + 0.9) / (1 + 0.9 * 0.01), 0.01)


def distance(sign, ratio=0.01):
    """How far one parameter travels, where weak gradients are golden ones times `sign`."""
    parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    rates = revision.TwoRates([parameter], lambda p, lr: torch.optim.Adam(p, lr=lr), 1e-3, ratio)
    for _ in range(300):
        rates.step(-parameter.sum())
        rates.step(-sign * parameter.sum(), weak=True)
    return parameter.item()


both, difference = distance(1), distance(-1)  # golden + weak, golden − weak
print(f"measured, β₁ = 0.9: {(both - difference) / (both + difference):.3f}")

# %% [markdown]
# In units of (1 − β₁) η, a weak gradient moves the parameter by λ + β₁ + λβ₁² + β₁³ + …, a golden
# one by 1 + λβ₁ + β₁² + λβ₁³ + … Both have the factor 1 + β₁² + β₁⁴ + …, so the ratio is
# (λ + β₁) / (1 + λβ₁): 0.902, and λ itself without momentum. The code measures it with Adam, whose
# denominator is not constant, and comes near. No λ would halve the pull: at λ = 0 it is still
# β₁ = 0.9. For that β₁ must be 0.5 or less, or weak batches need an optimiser of their own.

# %% [markdown]
# ## Exercise 4. Mask what the sentence is about


# %%
def attended(weights, words):
    of_tokens = weights.mean(dim=1) * words[..., None]
    return of_tokens.sum(dim=1)[:, 1:] / words.sum(dim=1, keepdim=True)


torch.manual_seed(0)
reader = encoders.CrossEncoder(encoders.Shape(width=8, heads=2, cross_layers=1))
seen_4, no_padding = [], torch.ones(1, 4, dtype=torch.bool)
reader.layers[-1].crossattention.self.register_forward_hook(lambda *call: seen_4.append(call[2][1]))
reader(torch.randn(1, 4, 8), no_padding, torch.randn(1, 1 + 5, 8))
looks = attended(seen_4[0].detach(), no_padding)
print("attention:", looks)
print("kept:     ", classifier.mask_regions(torch.ones(1, 5, 1), looks, 0.4)[0, :, 0])

# %% [markdown]
# The code also takes the weights from a `CrossEncoder`: they are the second thing that its
# `crossattention.self` returns, which a forward hook can keep. With them in the place of
# `attention`, `mask_regions` makes a negative for a reason that has to do with the sentence.

# %% [markdown]
# ## Exercise 5. Mine without a judge

# %%
guessed = []
for k, proposer_k in enumerate(proposers):
    toy_k = controlled.load(2, seed + k)
    guesses = propose(proposer_k, toy_k.splits["train"], toy_k.table, top=15)
    true_k = toy_k.splits["train"].fits[tuple(guesses.T)]
    print(f"seed {seed + k}: {100 * true_k.mean():.0f} % of the guesses are true")
    guessed.append(mean_ap_of(toy_k, "triplet", "both", seed + k, revision.Weak.of(guesses)))
judges = [score for *row, _, score in gains if row == ["triplet", "the judge's pairs"]]
leads = np.array(judges) - guessed
mean, half = leads.mean(), 4.3027 * leads.std(ddof=1) / 3**0.5
answer_5 = (mean, mean - half, mean + half, 1 if mean > half else 2 if mean < -half else 3)
print(f"judge minus guesses: {mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}] points of mAP")

# %% [markdown]
# The printed lines say which it is in this run. Guesses confirm what the retriever believes
# already, and where most of them are true they help all the same. A judge adds what the retriever
# does not know: labels of other pictures, and the own captions. Three seeds of one small collection
# say nothing about other densities, other losses, or photographs.
