"""Zoo networks with a state that goes on through time."""

from torch import Tensor, nn


class LSTMClassifier(nn.Module):
    """Two layers of `nn.LSTM` over tokens; the last position is read."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(17, 7)
        self.lstm = nn.LSTM(7, 11, num_layers=2, batch_first=True)
        self.head = nn.Linear(11, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids to the logits of the last position."""
        states, _ = self.lstm(self.embedding(tokens))
        return self.head(states[:, -1])


class GRUCells(nn.Module):
    """A cell in a loop over time, whose state is read at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(5, 7)
        self.cell = nn.GRUCell(7, 10)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences of vectors to logits."""
        x = self.stem(x).relu()
        state = x.new_zeros(len(x), 10)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state)


class ReluRNN(nn.Module):
    """`nn.RNN` with ReLU in both directions: a homogeneous network over time."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(5, 7, nonlinearity="relu", bidirectional=True, batch_first=True)
        self.head = nn.Linear(14, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences of vectors to logits of their mean."""
        return self.head(self.rnn(x)[0].mean(1))
