# %% [markdown]
# # Worked answers: 00 · Start here
#
# Each cell goes into `00_start_here.ipynb`, in the place of the exercise's `...`. Other answers may
# be as good.

# %% [markdown]
# ## Exercise 1. True or false

# %%
answer_1 = [int(satisfies(test.scenes[quiz_row], one.graph)) for one in quiz]

# %% [markdown]
# `satisfies` decides it: can the things that the sentence names be found in the scene, each a
# different one, with all that is said of them? What the sentence leaves out plays no part.

# %% [markdown]
# ## Exercise 2. Ranks by hand

# %%
six_ranks = np.array([1, 3, 2, 40, 1, 12])
answer_2 = [100 * (six_ranks <= k).mean() for k in (1, 5, 10)] + [np.median(six_ranks), 20]

# %% [markdown]
# Two of six ranks are 1, four are at most 5, and no more are at most 10: 33.3, 66.7 and 66.7. The
# middle of the sorted ranks lies between 2 and 3, so MedR is 2.5; the rank of 40 does not move it.
# By chance, 10 of 50 places give 20 %. Among our 300 pictures it is 3.3 %, so figures of different
# pools cannot be compared.

# %% [markdown]
# ## Exercise 3. Read a verdict

# %%
answer_3 = claims.verdict(effects.Interval(0.4, se=1.9 / 1.96, df=np.inf), smallest=2.0)

# %% [markdown]
# Undecided: the effect may be 0, negative, or one that matters, since +2.3 is beyond 2. That the
# interval contains 0 does not make it negligible: "no difference was found" is not "there is none".
# Had it ended at +1.9, it would be negligible.

# %% [markdown]
# ## Exercise 4. Build another loss


# %%
def hinge_loss(cosines, margin):
    """The mean hinge over the hardest wrong picture and caption of each pair."""
    right = cosines.diagonal()
    wrong = cosines.masked_fill(torch.eye(len(cosines), dtype=torch.bool), -torch.inf)
    hardest = torch.stack([wrong.amax(dim=0), wrong.amax(dim=1)])
    return (margin - right + hardest).clamp_min(0).mean()


# %% [markdown]
# The diagonal is set to −∞ before the maximum, or the right pair would be its own negative. To
# train with this loss, put `hinge_loss(left @ right.T, 0.2)` in the place of `clip_loss` in section
# 5. Two captions of one picture in a batch are then false negatives; `same` leaves them out.

# %% [markdown]
# ## Exercise 5. Train a changed model


# %%
def mean_pool(states, mask):
    """The mean over the words, without padding."""
    inside = mask[..., None]
    return (states * inside).sum(dim=1) / inside.sum(dim=1)


MeanSearch = type("MeanSearch", (method.Search,), {"pool": lambda _, *batch: mean_pool(*batch)})
gains = []
for seed in seed_list:
    other, _ = run.train(arrays, settings, seed, Run(chosen_device), MeanSearch)
    maximum, mean = (run.score(each, arrays, chosen_device) for each in (models[seed], other))
    gains.append(maximum["R@10"] - mean["R@10"])
gain = effects.crossed(np.array(gains), arrays.clusters("test"))
sentence = f"Maximum − mean: {gain.told(1)} points, {claims.verdict(gain, smallest=2.0)}."
answer_5 = gains, (gain.effect, gain.low, gain.high), sentence

# %% [markdown]
# `print(sentence)` shows what came out. It is easy to explain why the maximum should win, and as
# easy why the mean should. The interval says whether there is anything to explain in trainings as
# short as these. If it is undecided, more trainings may help: `mmlib run 00 --seeds 10`.
