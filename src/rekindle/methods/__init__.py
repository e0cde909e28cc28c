"""Methods, and the one import for whoever writes one: `from rekindle.methods import Card, Edit, one_shot_method, ...`.

One folder for each kind, one file for each method. Names are loaded when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekindle._lazy import lazy

_HOMES = {
    "CUBIC": "rekindle.kernels.polar",
    "Card": "card",
    "Clamp": "rekindle.edits.update",
    "ELEMENTS_BEGIN_AGAIN": "card",
    "Edit": "rekindle.edits.edit",
    "Edits": "rekindle.edits.edit",
    "Evidence": "rekindle.observe",
    "Gradients": "rekindle.observe",
    "Group": "rekindle.graph.groups",
    "KeeperError": "rekindle.errors",
    "MUON": "rekindle.kernels.polar",
    "MatrixView": "rekindle.graph.regions",
    "Means": "recycling",
    "MethodContext": "state",
    "MethodState": "state",
    "Multiply": "rekindle.edits.update",
    "NoEffectWarning": "rekindle.errors",
    "Normal": "rekindle.kernels.initializers",
    "OneShotMethod": "kinds",
    "OptimizerMethod": "kinds",
    "PerStepMethod": "kinds",
    "PlanError": "rekindle.errors",
    "QUINTIC": "rekindle.kernels.polar",
    "ReadPoint": "rekindle.observe.read_points",
    "RecyclerMethod": "kinds",
    "Replace": "rekindle.edits.update",
    "SettingsError": "rekindle.errors",
    "Skip": "rekindle.edits.edit",
    "Slot": "rekindle.graph.groups",
    "Standardize": "rekindle.edits.surgery",
    "Surgery": "rekindle.edits.surgery",
    "Twins": "rekindle.edits.surgery",
    "Uniform": "rekindle.kernels.initializers",
    "UnitGraph": "rekindle.graph",
    "UnitIndex": "rekindle.graph.regions",
    "Update": "rekindle.edits.update",
    "Weight": "rekindle.graph.weight",
    "Where": "rekindle.graph.regions",
    "Whole": "rekindle.graph.regions",
    "bare": "rekindle.graph.unwrap",
    "by_feature": "rekindle.kernels.per_feature",
    "change": "spec",
    "generator": "rekindle.seeds",
    "kind_of": "kinds",
    "links": "spec",
    "list_methods": "registry",
    "magnitude": "rekindle.kernels.per_feature",
    "matches": "rekindle.graph.names",
    "matrix_edits": "rekindle.edits.matrices",
    "method": "registry",
    "methods": "registry",
    "modules_of": "rekindle.graph.modules",
    "name_of": "spec",
    "newton_schulz": "rekindle.kernels.polar",
    "no_gradients": "state",
    "one_shot_method": "kinds",
    "optimizer_method": "kinds",
    "parameters_of": "rekindle.graph.modules",
    "parseval": "rekindle.kernels.penalties",
    "per_step_method": "kinds",
    "polar": "rekindle.kernels.polar",
    "polar_exact": "rekindle.kernels.polar",
    "power_iteration": "rekindle.kernels.penalties",
    "random_mask": "rekindle.kernels.subsets",
    "recyclable": "recycling",
    "recycler_method": "kinds",
    "relative": "rekindle.kernels.per_feature",
    "scan": "rekindle.graph.scan",
    "settings": "frozen_settings",
    "share": "rekindle.kernels.subsets",
    "shrink_by_direction": "rekindle.kernels.direction",
    "smallest": "rekindle.kernels.subsets",
    "smallest_of_all": "rekindle.kernels.subsets",
    "spectral": "rekindle.kernels.penalties",
    "split": "spec",
    "squared_distance": "rekindle.kernels.penalties",
    "submodule": "rekindle.graph.modules",
    "tensors_of": "rekindle.graph.modules",
    "to_spec": "spec",
    "trace": "rekindle.graph",
    "why_not_in_place": "rekindle.graph.plain",
    "wide_dtype": "rekindle.kernels.precision",
    "widened": "rekindle.kernels.precision",
}
__all__ = [*_HOMES]

if TYPE_CHECKING:
    from rekindle.edits.edit import Edit as Edit
    from rekindle.edits.edit import Edits as Edits
    from rekindle.edits.edit import Skip as Skip
    from rekindle.edits.matrices import matrix_edits as matrix_edits
    from rekindle.edits.surgery import Standardize as Standardize
    from rekindle.edits.surgery import Surgery as Surgery
    from rekindle.edits.surgery import Twins as Twins
    from rekindle.edits.update import Clamp as Clamp
    from rekindle.edits.update import Multiply as Multiply
    from rekindle.edits.update import Replace as Replace
    from rekindle.edits.update import Update as Update
    from rekindle.errors import KeeperError as KeeperError
    from rekindle.errors import NoEffectWarning as NoEffectWarning
    from rekindle.errors import PlanError as PlanError
    from rekindle.errors import SettingsError as SettingsError
    from rekindle.graph import UnitGraph as UnitGraph
    from rekindle.graph import trace as trace
    from rekindle.graph.groups import Group as Group
    from rekindle.graph.groups import Slot as Slot
    from rekindle.graph.modules import modules_of as modules_of
    from rekindle.graph.modules import parameters_of as parameters_of
    from rekindle.graph.modules import submodule as submodule
    from rekindle.graph.modules import tensors_of as tensors_of
    from rekindle.graph.names import matches as matches
    from rekindle.graph.plain import why_not_in_place as why_not_in_place
    from rekindle.graph.regions import MatrixView as MatrixView
    from rekindle.graph.regions import UnitIndex as UnitIndex
    from rekindle.graph.regions import Where as Where
    from rekindle.graph.regions import Whole as Whole
    from rekindle.graph.scan import scan as scan
    from rekindle.graph.unwrap import bare as bare
    from rekindle.graph.weight import Weight as Weight
    from rekindle.kernels.direction import shrink_by_direction as shrink_by_direction
    from rekindle.kernels.initializers import Normal as Normal
    from rekindle.kernels.initializers import Uniform as Uniform
    from rekindle.kernels.penalties import parseval as parseval
    from rekindle.kernels.penalties import power_iteration as power_iteration
    from rekindle.kernels.penalties import spectral as spectral
    from rekindle.kernels.penalties import squared_distance as squared_distance
    from rekindle.kernels.per_feature import by_feature as by_feature
    from rekindle.kernels.per_feature import magnitude as magnitude
    from rekindle.kernels.per_feature import relative as relative
    from rekindle.kernels.polar import CUBIC as CUBIC
    from rekindle.kernels.polar import MUON as MUON
    from rekindle.kernels.polar import QUINTIC as QUINTIC
    from rekindle.kernels.polar import newton_schulz as newton_schulz
    from rekindle.kernels.polar import polar as polar
    from rekindle.kernels.polar import polar_exact as polar_exact
    from rekindle.kernels.precision import wide_dtype as wide_dtype
    from rekindle.kernels.precision import widened as widened
    from rekindle.kernels.subsets import random_mask as random_mask
    from rekindle.kernels.subsets import share as share
    from rekindle.kernels.subsets import smallest as smallest
    from rekindle.kernels.subsets import smallest_of_all as smallest_of_all
    from rekindle.methods.card import ELEMENTS_BEGIN_AGAIN as ELEMENTS_BEGIN_AGAIN
    from rekindle.methods.card import Card as Card
    from rekindle.methods.frozen_settings import settings as settings
    from rekindle.methods.kinds import OneShotMethod as OneShotMethod
    from rekindle.methods.kinds import OptimizerMethod as OptimizerMethod
    from rekindle.methods.kinds import PerStepMethod as PerStepMethod
    from rekindle.methods.kinds import RecyclerMethod as RecyclerMethod
    from rekindle.methods.kinds import kind_of as kind_of
    from rekindle.methods.kinds import one_shot_method as one_shot_method
    from rekindle.methods.kinds import optimizer_method as optimizer_method
    from rekindle.methods.kinds import per_step_method as per_step_method
    from rekindle.methods.kinds import recycler_method as recycler_method
    from rekindle.methods.recycling import Means as Means
    from rekindle.methods.recycling import recyclable as recyclable
    from rekindle.methods.registry import list_methods as list_methods
    from rekindle.methods.registry import method as method
    from rekindle.methods.registry import methods as methods
    from rekindle.methods.spec import change as change
    from rekindle.methods.spec import links as links
    from rekindle.methods.spec import name_of as name_of
    from rekindle.methods.spec import split as split
    from rekindle.methods.spec import to_spec as to_spec
    from rekindle.methods.state import MethodContext as MethodContext
    from rekindle.methods.state import MethodState as MethodState
    from rekindle.methods.state import no_gradients as no_gradients
    from rekindle.observe import Evidence as Evidence
    from rekindle.observe import Gradients as Gradients
    from rekindle.observe.read_points import ReadPoint as ReadPoint
    from rekindle.seeds import generator as generator

__getattr__, __dir__ = lazy(__name__, _HOMES)
