"""All experiments of the paper on frozen weights."""

from papers.frozen import one_task, two_tasks

EXPERIMENTS = (*one_task.EXPERIMENTS, *two_tasks.EXPERIMENTS)
