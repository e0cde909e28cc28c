"""Models that get at what is inside of a part by something that it, or somebody, keeps; `early` takes the other way."""

from torch import nn

STORE = {}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.kept = nn.Linear(6, 5), nn.Linear(5, 4), []

    def forward(self, x):
        self.hidden = self.a(x).relu()
        self.kept[:] = [self.hidden]
        STORE["hidden"] = self.hidden
        return self.b(self.hidden)


class Keeping(nn.Module):
    def __init__(self, early):
        super().__init__()
        self.early, self.encoder, self.o, self.q = early, Encoder(), nn.Linear(4, 3), nn.Linear(5, 3)

    def forward(self, x):
        h = self.encoder(x)
        if h.sum() < (-1e9 if self.early else 1e9):
            return self.o(h) + self.q(self.found(x))
        return self.o(h)


class OnThePart(Keeping):
    def found(self, x):
        return self.encoder.hidden


class InAList(Keeping):
    def found(self, x):
        return self.encoder.kept[0]


class InAGlobal(Keeping):
    def found(self, x):
        return STORE["hidden"]


class ByAHook(Keeping):
    def __init__(self, early):
        super().__init__(early)
        self.encoder.b.register_forward_pre_hook(self.keep)

    def keep(self, module, args):
        self.seen = args[0]

    def found(self, x):
        return self.seen


class ByALocalName(Keeping):
    def found(self, x):
        encoder = self.encoder
        return encoder.hidden


class ByAFunction(Keeping):
    def __init__(self, early):
        super().__init__(early)
        model = self
        self.found = lambda x: model.encoder.a(x)


class Helper:
    def run(self, net, x):
        return x @ net.encoder.a.weight.t()


class ByAHelper(Keeping):
    def __init__(self, early):
        super().__init__(early)
        self.helper = Helper()

    def found(self, x):
        return self.helper.run(self, x)


class ByAPlainList(Keeping):
    def __init__(self, early):
        super().__init__(early)
        self.parts = [self.encoder.a]

    def found(self, x):
        return self.parts[0](x)


class ByAComputedName(Keeping):
    def found(self, x):
        name = "hid" + "den"
        return getattr(self.encoder, name)


class Control(nn.Module):
    def __init__(self, other):
        super().__init__()
        self.other = [other]

    def forward(self, x):
        return self.other[0].a(x)


class ByAnotherPart(Keeping):
    def __init__(self, early):
        super().__init__(early)
        self.control = Control(self.encoder)

    def found(self, x):
        return self.control(x)


KEEPING = [OnThePart, InAList, InAGlobal, ByAHook, ByALocalName, ByAFunction, ByAHelper, ByAPlainList]
KEEPING += [ByAComputedName, ByAnotherPart]
