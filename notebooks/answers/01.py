# %% [markdown]
# # Worked answers: 01 · Coherence-aware retrieval
#
# Each cell goes into `01_coherence_retrieval.ipynb`, in the place of the exercise's `...`. Other
# answers may be as good.

# %% [markdown]
# ## Exercise 1. What is the ±?

# %%
answer_1 = "c"

# %% [markdown]
# Two things must be known. Were the pools the same, so that differences can be paired? And how much
# does MedR change with the seed, which no ± over pools can show? The authors' sweep over maximal
# lengths shows both noises together, by accident: seven trainings of nearly one model lie between
# 16.85 and 19.75.

# %% [markdown]
# ## Exercise 2. Find the leak


# %%
def leak(train_images, test_images):
    images = set(train_images)
    return 100 * sum(image in images for image in test_images) / len(test_images)


images_of_rows = {}
for split in ("train", "val", "test"):
    part = pairs.split(split)
    images_of_rows[split] = [part.image_ids[i] for i in part.image_of]
for split in ("val", "test"):
    share = leak(images_of_rows["train"], images_of_rows[split])
    print(f"{name}, {split}: {share:.1f} % of the rows show a picture of training")

# %% [markdown]
# On Clue it is 610 of 1,512 rows, 40 %. There a model may recognise the picture, with captions much
# like the one asked about, instead of understanding a new one; so report the clean rows, or both.
# All 610 have captions by machines: the files were split by row, not by picture, and only machine
# captions repeat pictures.

# %% [markdown]
# ## Exercise 3. No interaction

# %%
steps_3 = torch.eye(2).repeat_interleave(2, dim=0)
pictures_3 = torch.eye(2).repeat(2, 1)
holds_3 = (steps_3 * pictures_3).sum(dim=1, keepdim=True)
torch.manual_seed(0)
cam = CoherenceHead(width=2, relations=1)
optimiser = torch.optim.Adam(cam.parameters(), lr=0.1)
for _ in range(300):
    optimiser.zero_grad()
    loss_3 = coherence_loss(cam(steps_3, pictures_3), holds_3 > 0, torch.ones(1))
    loss_3.backward()
    optimiser.step()
answer_3 = loss_3.item()
print(f"loss {answer_3:.3f}, probabilities", cam(steps_3, pictures_3).sigmoid()[:, 0].detach())

# %% [markdown]
# The log-odds are a sum of a text's part and an image's part. So the two right pairs together have
# the same log-odds as the two wrong ones. The best the head can do is to say .5 four times: the
# loss is $-\log .5 = .69$. A hidden layer on both vectors would have terms of both, and so would
# the products of exercise 4.

# %% [markdown]
# ## Exercise 4. Build a better head


# %%
class InteractionHead(CoherenceHead):
    def __init__(self, width, relations):
        super().__init__(width, relations)
        self.both = nn.Parameter(torch.zeros(relations, width))

    def forward(self, texts, images):
        return super().forward(texts, images) + (texts * images) @ self.both.T


# %% [markdown]
# With $d_c$ = (w, w) and $v_c$ = −w/2, the right pairs of exercise 3 get log-odds of w/2 and the
# wrong ones −w/2. The loss falls towards 0 as w grows. To train with it, put it in the place of
# `CoherenceHead` in the class `CoherenceModel`. In our evidence a head on the products alone
# retrieves no better.

# %% [markdown]
# ## Exercise 5. Fewer labels


# %%
def partial_loss(logits, labels, weights):
    labelled = labels.any(dim=1)
    if not labelled.any():
        return 0 * logits.sum()
    return coherence_loss(logits[labelled], labels[labelled], weights)


training = toy.splits["train"]
kept = np.random.default_rng(0).random(len(training)) < 0.5
half = replace(training, labels=training.labels & kept[:, None])
torch.manual_seed(0)
model = CoherenceModel(toy, toy_budget, weight=0.4)
model.relation_loss = partial_loss
curve = fit(model, replace(toy, splits={**toy.splits, "train": half}))
print(f"log2 rank on dev with half of the labels: {curve[-1, 1]:.2f}")

# %% [markdown]
# Compare the printed rank with the two curves of section 2. Half of the labels are about four pairs
# a cue, and bring about half of the gain or more; with a quarter little is left. So labels pay here
# only when there are several for each thing that is to be learned. One seed cannot say more, so
# train others.
