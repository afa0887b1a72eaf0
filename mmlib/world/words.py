"""The words of the picture world's captions: synonyms, verb forms, places, styles."""

# fmt: off
# "singular/plural" of each concept; the first is the plainest.
NOUNS: dict[str, tuple[str, ...]] = {
    concept: tuple(words.split(", "))
    for concept, words in {
        "man": "man/men, guy/guys, gentleman/gentlemen, fellow/fellows",
        "woman": "woman/women, lady/ladies",
        "boy": "boy/boys, lad/lads, schoolboy/schoolboys",
        "girl": "girl/girls, schoolgirl/schoolgirls",
        "person": "person/people, someone/, individual/individuals",
        "adult": "adult/adults, grown-up/grown-ups",
        "child": "child/children, kid/kids, youngster/youngsters",
        "dog": "dog/dogs, hound/hounds, doggy/doggies",
        "cat": "cat/cats, kitty/kitties",
        "horse": "horse/horses, pony/ponies",
        "bird": "bird/birds",
        "sheep": "sheep/sheep",
        "cow": "cow/cows",
        "duck": "duck/ducks",
        "animal": "animal/animals, creature/creatures",
        "farm animal": "farm animal/farm animals",
        "car": "car/cars, automobile/automobiles, motor car/motor cars",
        "bus": "bus/buses, coach/coaches",
        "bicycle": "bicycle/bicycles, bike/bikes, cycle/cycles",
        "boat": "boat/boats, sailboat/sailboats, sailing boat/sailing boats, vessel/vessels",
        "truck": "truck/trucks, lorry/lorries",
        "vehicle": "vehicle/vehicles",
        "tree": "tree/trees",
        "flower": "flower/flowers, blossom/blossoms, bloom/blooms",
        "bush": "bush/bushes, shrub/shrubs",
        "cactus": "cactus/cacti",
        "plant": "plant/plants",
        "house": "house/houses, home/homes",
        "tower": "tower/towers, turret/turrets",
        "barn": "barn/barns",
        "tent": "tent/tents, camping tent/camping tents",
        "building": "building/buildings",
        "structure": "structure/structures",
        "ball": "ball/balls",
        "kite": "kite/kites",
        "toy": "toy/toys",
        "umbrella": "umbrella/umbrellas, parasol/parasols",
        "bench": "bench/benches",
        "seat": "seat/seats",
        "box": "box/boxes, carton/cartons, parcel/parcels, package/packages",
        "balloon": "balloon/balloons",
        "chair": "chair/chairs",
        "lamp": "lamp/lamps, lamp post/lamp posts, street light/street lights",
        "object": "object/objects",
        "thing": "something/",
    }.items()
}
# The wider concepts that a caption may use in place of a kind.
WIDER: dict[str, tuple[str, ...]] = {
    "man": ("person", "adult"), "woman": ("person", "adult"),
    "boy": ("child", "person"), "girl": ("child", "person"),
    "dog": ("animal",), "cat": ("animal",), "bird": ("animal",), "duck": ("animal",),
    "horse": ("animal", "farm animal"), "sheep": ("animal", "farm animal"),
    "cow": ("animal", "farm animal"),
    "car": ("vehicle",), "bus": ("vehicle",), "truck": ("vehicle",), "bicycle": ("vehicle",),
    "boat": ("vehicle",),
    "tree": ("plant",), "flower": ("plant",), "bush": ("plant",), "cactus": ("plant",),
    "house": ("building",), "tower": ("building", "structure"), "barn": ("building",),
    "tent": ("structure",), "ball": ("toy",), "kite": ("toy",), "balloon": ("toy",),
    "bench": ("seat",), "chair": ("seat",), "box": ("object",), "lamp": ("object",),
    "umbrella": ("object",),
}
COLOUR_WORDS = {
    "red": "red red bright-red scarlet", "orange": "orange",
    "yellow": "yellow yellow bright-yellow", "green": "green", "blue": "blue",
    "purple": "purple purple violet", "pink": "pink",
    "brown": "brown", "black": "black", "white": "white",
}
SIZE_WORDS = {"small": "small little tiny", "medium": "medium-sized", "large": "large big huge"}
TALL = "man woman person adult tree tower cactus lamp".split()  # large ones may be tall
PATTERN_WORDS = {
    "plain": "plain", "striped": "striped stripy", "spotted": "spotted dotted",
    "checked": "checked checkered",
}
GARMENTS = {"man": "shirt sweater jersey pullover", "boy": "shirt T-shirt sweater jersey",
            "woman": "dress dress gown", "girl": "dress dress frock"}
# action -> kinds -> "participle|third person|plural"; "" where only the participle is used.
VERBS: dict[str, dict[str, str]] = {
    "standing": {
        "person": "standing|stands|stand, standing still|stands still|stand still, "
                  "waiting|waits|wait",
        "animal": "standing|stands|stand, standing still|stands still|stand still",
        "vehicle": "parked||, standing|stands|stand",
    },
    "walking": {
        "person": "walking|walks|walk, strolling|strolls|stroll, "
                  "taking a walk|takes a walk|take a walk, going for a walk||",
        "animal": "walking|walks|walk, wandering|wanders|wander, "
                  "walking around|walks around|walk around",
        "horse": "trotting|trots|trot", "dog": "trotting|trots|trot",
        "duck": "waddling|waddles|waddle", "cat": "prowling|prowls|prowl",
    },
    "running": {
        "person": "running|runs|run, sprinting|sprints|sprint, "
                  "racing along|races along|race along, "
                  "dashing|dashes|dash",
        "animal": "running|runs|run, racing along|races along|race along, "
                  "rushing along|rushes along|rush along",
        "horse": "galloping|gallops|gallop",
    },
    "jumping": {
        "person": "jumping|jumps|jump, leaping|leaps|leap, "
                  "jumping in the air|jumps in the air|jump in the air, "
                  "leaping into the air|leaps into the air|leap into the air",
        "animal": "jumping|jumps|jump, leaping|leaps|leap, hopping|hops|hop, "
                  "bouncing|bounces|bounce",
    },
    "sitting": {
        "person": "sitting|sits|sit, seated||, sitting down||",
        "animal": "sitting|sits|sit, sitting up|sits up|sit up",
    },
    "lying": {
        "person": "lying down|lies down|lie down, lying on the ground|lies on the ground|"
                  "lie on the ground, stretched out||, resting|rests|rest",
        "animal": "lying down|lies down|lie down, resting|rests|rest, "
                  "lying on the ground|lies on the ground|lie on the ground",
    },
    "flying": {
        "animal": "flying|flies|fly, soaring|soars|soar, gliding|glides|glide, "
                  "flying through the air|flies through the air|fly through the air",
        "kite": "flying|flies|fly, flying in the sky|flies in the sky|fly in the sky, "
                "soaring in the sky|soars in the sky|soar in the sky, "
                "high in the air||",
    },
    "floating": {
        "animal": "swimming|swims|swim, floating on the water|floats on the water|"
                  "float on the water, paddling on the water|paddles on the water|"
                  "paddle on the water",
        "vehicle": "floating|floats|float, floating on the water|floats on the water|"
                   "float on the water, bobbing on the water|bobs on the water|bob on the water",
        "balloon": "floating|floats|float, drifting|drifts|drift, hovering|hovers|hover, "
                   "floating in the air|floats in the air|float in the air",
    },
    "moving": {
        "car": "driving along|drives along|drive along, going along|goes along|go along",
        "bus": "driving along|drives along|drive along, passing by|passes by|pass by",
        "truck": "driving along|drives along|drive along, rolling along|rolls along|roll along",
        "vehicle": "moving|moves|move",
        "boat": "sailing|sails|sail, sailing along|sails along|sail along",
        "bicycle": "rolling along|rolls along|roll along",
        "ball": "rolling|rolls|roll, rolling along|rolls along|roll along",
    },
    "eating": {
        "person": "eating|eats|eat, having a snack|has a snack|have a snack, "
                  "having a bite|has a bite|have a bite, snacking|snacks|snack",
        "animal": "eating|eats|eat, feeding|feeds|feed, "
                  "having a meal|has a meal|have a meal",
        "horse": "grazing|grazes|graze", "sheep": "grazing|grazes|graze",
        "cow": "grazing|grazes|graze, chewing|chews|chew",
        "bird": "pecking|pecks|peck",
    },
}
# relation -> "participle or preposition|third person|plural"
RELATION_WORDS: dict[str, str] = {
    "left of": "to the left of, to the left of, on the left of, left of",
    "right of": "to the right of, to the right of, on the right of, right of",
    "behind": "behind, behind, beyond",
    "in front of": "in front of",
    "near": "near, close to, next to, beside, by, not far from, alongside",
    "on": "on, on top of",
    "under": "under, beneath, underneath, below",
}
HOLDING = {
    "": "holding|holds|hold, holding|holds|hold, with|has|have, clutching|clutches|clutch, "
        "grasping|grasps|grasp",
    "walking": "carrying|carries|carry", "standing": "holding up|holds up|hold up",
    "kite": "flying|flies|fly, flying|flies|fly",
}
RIDING = {"": "riding|rides|ride, riding on|rides on|ride on, riding|rides|ride",
          "bicycle": "riding|rides|ride, pedalling|pedals|pedal"}
CHASING = {"": "chasing|chases|chase, running after|runs after|run after, "
               "pursuing|pursues|pursue, chasing after|chases after|chase after"}
PASSIVE = {"holding": "held by, being held by, in the hands of",
           "riding": "ridden by, being ridden by",
           "chasing": "chased by, being chased by, pursued by, followed by"}
PERCHED = {"bird": "perched on||", "cat": "curled up on||", "ball": "lying on|lies on|lie on"}
TOGETHER = "next to each other, close together, near each other, close to each other"
NUMBERS = {2: "two, two, two, a pair of, a couple of",
           3: "three, three, a group of three, a trio of",
           4: "four, four, a group of four", 5: "five, a group of five"}
# setting -> "phrase:noun". "ground" ones are for what stands there, not for what flies or floats.
PLACES: dict[str, dict[str, str]] = {
    "beach": {
        "any": "at the beach:beach, by the sea:sea, at the seaside:seaside, "
               "at the seashore:seashore, by the ocean:ocean, on the coast:coast",
        "ground": "on the beach:beach, on the sand:sand, on a sandy beach:beach, "
                  "on the shore:shore",
        "scene": "beach:beach, seaside:seaside, coastal:coast",
    },
    "park": {
        "any": "in the park:park, in a park:park, in a city park:park, in a green park:park, "
               "in a public park:park, outside in the park:park",
        "ground": "on the lawn:lawn, on the grass:grass",
        "scene": "park:park",
    },
    "street": {
        "any": "in the street:street, in town:town, in the city:city, in a city street:street, "
               "in an urban street:street, in the town:town",
        "ground": "on the street:street, on a city street:street, on a street:street",
        "scene": "street:street, city:city, town:town, urban:city",
    },
    "desert": {
        "any": "in the desert:desert, in a desert:desert, in a dry desert:desert, "
               "among the dunes:dunes, in a sandy desert:desert, in the hot desert:desert",
        "ground": "on the desert sand:sand, on desert ground:ground",
        "scene": "desert:desert",
    },
    "snow": {
        "any": "in the snow:snow, in a snowy landscape:landscape, in winter:winter, "
               "on a snowy day:day, on a cold winter day:day, in a wintry landscape:landscape",
        "ground": "on the snow:snow, on snowy ground:ground, on snow-covered ground:ground",
        "scene": "snow:snow, snowy:snow, winter:winter, wintry:winter",
    },
    "forest": {
        "any": "in the forest:forest, in a forest:forest, in the woods:woods, in a wood:wood, "
               "deep in the woods:woods, in a shady forest:forest",
        "ground": "on the forest floor:floor",
        "scene": "forest:forest, woodland:woodland",
    },
    "field": {
        "any": "in a field:field, in the field:field, in the fields:fields, "
               "in the countryside:countryside, out in the fields:fields, "
               "in a farmer's field:field, in a rural area:area",
        "ground": "on farmland:farmland, on a ploughed field:field",
        "scene": "farm:farm, countryside:countryside, country:country, rural:countryside",
    },
    "mountain": {
        "any": "in the mountains:mountains, near the mountains:mountains, "
               "by a mountain lake:lake, at the foot of the mountains:mountains, "
               "below snowy peaks:peaks, in a mountain valley:valley",
        "ground": "on the shore of a mountain lake:shore",
        "scene": "mountain:mountain, alpine:mountain",
    },
}
STYLE_PHRASES: dict[str, str] = {
    "photo": "a photo of:photo, a photograph of:photograph, a colour photo of:photo",
    "sketch": "a sketch of:sketch, a drawing of:drawing, a pencil drawing of:drawing, "
              "a rough sketch of:sketch, a pencil sketch of:sketch",
    "black and white": "a black and white picture of:picture, a black and white image of:image, "
                       "a monochrome picture of:picture, a greyscale image of:image",
    "flat": "a cartoon of:cartoon, a flat illustration of:illustration, "
            "a simple illustration of:illustration, a flat cartoon of:cartoon",
}
# fmt: on
