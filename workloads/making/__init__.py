"""Making of datasets: generation, import of published graphs, and the writer that both
use."""
