"""The shapes: everything about a problem that decides a compilation, and nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """`scale` belongs here because it is compiled in; None means `K**-0.5`."""

    name: str
    B: int
    T: int
    Hk: int
    Hv: int
    K: int
    V: int
    chunk_size: int
    scale: float | None = None

    @property
    def scale_is_a_power_of_two(self) -> bool:
        scale = self.K**-0.5 if self.scale is None else self.scale
        return scale.hex().startswith("0x1.0000000000000p")

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each input and cotangent."""
        keys, values, gates = (
            (self.B, self.T, self.Hk, self.K),
            (self.B, self.T, self.Hv, self.V),
            (self.B, self.T, self.Hv),
        )
        states = (self.B, self.Hv, self.K, self.V)
        return {
            "q": keys,
            "k": keys,
            "v": values,
            "g": gates,
            "beta": gates,
            "initial_state": states,
            "do": values,
            "dfinal_state": states,
        }


# ragged is the default: 328 tokens are 41 a rank on 8 ranks, three chunks of 16 of which the last holds 9.
RAGGED = Shape("ragged", B=2, T=328, Hk=2, Hv=6, K=16, V=24, chunk_size=16)
# aligned is the only one with Hv = Hk, K = V and a scale of its own.
ALIGNED = Shape("aligned", B=2, T=384, Hk=2, Hv=2, K=16, V=16, chunk_size=16, scale=0.5)
# wide has the head sizes and the chunk of Qwen3-Next.
WIDE = Shape("wide", B=1, T=384, Hk=2, Hv=2, K=128, V=128, chunk_size=64)
# short is less than a chunk on one device, and one token a rank on 8.
SHORT = Shape("short", B=2, T=8, Hk=2, Hv=6, K=16, V=24, chunk_size=16)
# uneven has nothing that divides anything: sizes that code may take for granted, as two heads or eights of tokens.
UNEVEN = Shape("uneven", B=3, T=95, Hk=4, Hv=8, K=24, V=16, chunk_size=16)
SINGLE = Shape("single", B=2, T=1, Hk=2, Hv=6, K=16, V=24, chunk_size=16)

SHAPES = {shape.name: shape for shape in (RAGGED, ALIGNED, UNEVEN, WIDE, SHORT, SINGLE)}
