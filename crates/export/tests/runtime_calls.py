"""Tests of the runtime of packages without the judge: `runtime.rs` runs them. The arguments are the
folder of the runtime and the file of the footer of `--dtype`.

Each task's launch is a function of torch; all above it is the runtime's own.
"""

import hashlib
import importlib
import json
import shutil
import sys
import tempfile
import threading
import unittest
import unittest.mock
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

warnings.simplefilter("ignore")
RUNTIME, CAST = (Path(argument) for argument in sys.argv[1:3])
BEGINNING = "import torch\nclass Model(torch.nn.Module):\n"
X = {"tensor": 0}
Launch = Callable[[list[torch.Tensor], list[torch.Tensor]], list[torch.Tensor]]


def form(shape: list[int], dtype: str = "float32") -> dict[str, Any]:
    strides = torch.empty(shape).stride()
    return {"shape": shape, "strides": list(strides), "dtype": dtype}


def made(slot: int, shape: list[int], dtype: str = "float32") -> dict[str, Any]:
    return {"home": {"slot": slot}, "offset": 0, **form(shape, dtype)}


def workload(
    inputs: list[Any], results: list[Any], tree: dict[str, Any], arguments: Any = None
) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(("lasting_bytes", "workspace_bytes", "library_bytes"), 0)
    return {
        **found,
        "inputs": inputs,
        "results": results,
        "tree": tree,
        "trees": [{"list": arguments or [X]}] * 2,
        "slots": [{"bytes": 0} for result in results if "slot" in result["home"]],
        "tables": [],
        "images": [],
        "prepares": False,
        "stateful": False,
    }


def task(
    name: str, body: str, workloads: list[dict[str, Any]], launches: list[Launch], **more: Any
) -> tuple[dict[str, Any], str, list[Launch]]:
    for index, one in enumerate(workloads):
        one |= {"name": str(index), "folder": f"workloads/{name}-{index}"}
    empty: dict[str, Any] = dict.fromkeys(("arch", "processor"))
    spec = {
        **empty,
        **{"name": name, "class": name.title().replace("_", ""), "task": name, "device": "cpu"},
        **{"trains": False, "steps": False, "strict": False, "changed": []},
        **{"state": [], "weights": [], "workloads": workloads, **more},
    }
    return spec, BEGINNING + body, launches


class Calls(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        sys.path.insert(0, str(self.folder))
        self.addCleanup(sys.path.remove, str(self.folder))

    def package(self, name: str, *tasks: Any) -> Any:
        folder = self.folder / name
        ignored = shutil.ignore_patterns("setup.py", "README.md", "__pycache__")
        shutil.copytree(RUNTIME, folder, ignore=ignored)
        text = (folder / "__init__.py").read_text()
        for spec, reference, _ in tasks:
            text += f'{spec["class"]} = package.module("{spec["name"]}")\n'
            for one in spec["workloads"]:
                (folder / one["folder"]).mkdir(parents=True)
                (folder / one["folder"] / "reference.py").write_text(reference)
        (folder / "__init__.py").write_text(text)
        spec = {"format": 1, "package": name, "namespace": f"warpwright_{name}"}
        spec["tasks"] = [spec for spec, _, _ in tasks]  # type: ignore[assignment]
        (folder / "package.json").write_text(json.dumps(spec))
        files = [path for path in folder.rglob("*") if path.is_file()]
        hashes = {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        }
        (folder / "manifest.json").write_text(json.dumps({"sha256": hashes}))
        package = importlib.import_module(name)
        for spec, _, launches in tasks:
            found = package.package.tasks[spec["name"]]
            found.checked = True
            for one, launch in zip(found.operator.workloads, launches, strict=True):
                one.run = launch
        return package

    def test_numbers_of_a_call_choose_the_workload(self) -> None:
        works = [
            workload([form([4])], [made(0, [4])], X, [X, {"float": number}])
            for number in ("1.0", "2.0")
        ]
        launches: list[Launch] = [lambda x, _: [x[0] * 1.0], lambda x, _: [x[0] * 2.0]]
        body = "  def forward(self, x, s): return x * s\n"
        package = self.package("scalars", task("scaled", body, works, launches))
        model = package.Scaled(recompute=True, on_mismatch="raise")
        x = torch.ones(4, requires_grad=True)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        for call in (model, compiled):
            for number in (1.0, 2.0):
                y = call(x, number)
                (grad,) = torch.autograd.grad(y.sum(), x)
                self.assertEqual((y[0].item(), grad[0].item()), (number, number))
        operator = package.package.tasks["scaled"].operator.call
        with self.assertRaisesRegex(RuntimeError, "workload=INDEX"):
            operator(torch.ones(4))
        torch.library.opcheck(operator.default, (x,), {"recompute": True, "workload": 1})

    def test_gradients_belong_to_their_results(self) -> None:
        given = {"home": {"input": 0}, "offset": 0, **form([4])}
        two = {"tuple": [X, {"tensor": 1}]}
        index = made(0, [4], "int64")
        wave = made(0, [4], "complex64")
        cases: dict[str, tuple[str, dict[str, Any], Launch]] = {
            "same": ("x", given, lambda x, _: [x[0] * 3]),
            "order": ("x.argsort()", index, lambda x, _: [x[0].argsort(), x[0] * 3]),
            "wave": ("x * 1j", wave, lambda x, _: [x[0] * 1j, x[0] * 3]),
        }
        for name, (first, result, launch) in cases.items():
            slot = 0 if result is given else 1
            work = workload([form([4])], [result, made(slot, [4])], two)
            body = f"  def forward(self, x): return {first}, x * 3\n"
            package = self.package(f"paired_{name}", task(name, body, [work], [launch]))
            model = getattr(package, name.title())(recompute=True)
            reference = type(model).__mro__[1].forward
            x = torch.arange(4.0).requires_grad_()
            grads = []
            for results in (model(x), reference(model, x)):
                loss = sum((r.abs() ** 2).sum() for r in results if r.requires_grad)
                grads.append(torch.autograd.grad(loss, x)[0])
            torch.testing.assert_close(grads[0], grads[1])
            self.assertGreater(grads[0].sum().item(), 0)

    def test_gradients_are_computed_in_the_thread_of_autograd(self) -> None:
        body = "  def forward(self, x):\n    global SEEN\n    import threading\n"
        body += "    SEEN = threading.get_ident()\n    return x * 3\n"
        work = workload([form([4])], [made(0, [4])], X)
        package = self.package("thread", task("seen", body, [work], [lambda x, _: [x[0] * 3]]))
        x = torch.ones(4, requires_grad=True)
        package.Seen(recompute=True)(x).sum().backward()
        operator = package.package.tasks["seen"].operator
        module = package.package.files.reference("workloads/seen-0/reference.py")
        self.assertEqual(module.SEEN, threading.get_ident())
        self.assertEqual(list(operator.references), [x.device])
        torch.testing.assert_close(x.grad, torch.full((4,), 3.0))

    def test_torch_without_the_switch_is_named(self) -> None:
        body = "  def forward(self, x): return x * 3\n"
        work = workload([form([4])], [made(0, [4])], X)
        package = self.package("switch", task("switch", body, [work], [lambda x, _: [x[0] * 3]]))
        y = package.Switch(recompute=True)(torch.ones(4, requires_grad=True))
        switch = "_dispatch_tls_set_dispatch_key_excluded"
        lacks = unittest.mock.patch.object(torch._C, switch, None)
        with lacks, self.assertRaisesRegex(RuntimeError, "has no switch for it"):
            y.sum().backward()

    def test_gradients_have_the_strides_of_their_inputs(self) -> None:
        body = "  def forward(self, x): return (x.t() * 2).contiguous()\n"
        work = workload([form([3, 4])], [made(0, [4, 3])], X)
        launch: Launch = lambda x, _: [(x[0].t() * 2).contiguous()]  # noqa: E731
        package = self.package("strides", task("turned", body, [work], [launch]))
        model = torch.compile(package.Turned(recompute=True), fullgraph=True)
        x = torch.randn(3, 4, requires_grad=True)
        (model(x) ** 2).sum().backward()
        torch.testing.assert_close(x.grad, 8 * x.detach())

    def test_cast_references_are_cast_in_the_package(self) -> None:
        body = "  def __init__(self):\n    super().__init__()\n"
        body += "    self.w = torch.nn.Parameter(torch.ones(4))\n"
        body += "    self.register_buffer('b', torch.ones(4), persistent=False)\n"
        body += "  def forward(self, x): return x * self.w * self.b\n"
        body += "def get_inputs(): return [torch.randn(4)]\n"
        body += f"{CAST.read_text()}\n_warpwright_cast('bfloat16')\n"
        half = "bfloat16"
        work = workload([form([4], half)], [made(0, [4], half)], X)
        launches: list[Launch] = [lambda x, w: [x[0] * w[0]]]
        more = {"state": [form([4], half)], "weights": [0]}
        package = self.package("cast", task("halved", body, [work], launches, **more))
        model, x = package.Halved(on_mismatch="raise"), torch.ones(4, dtype=torch.bfloat16)
        self.assertEqual((model.w.dtype, model.b.dtype), (torch.bfloat16, torch.bfloat16))
        torch.testing.assert_close(model(x), x)

    def test_helpers_of_operators_have_names_of_their_own(self) -> None:
        one = workload([form([4])], [made(0, [4])], X)
        two = workload([form([4])] * 2, [made(0, [4])], X, [X, {"tensor": 1}])
        package = self.package(
            "helpers",
            task("foo", "  def forward(self, x): return x * 3\n", [one], [lambda x, _: [x[0] * 3]]),
            task(
                "foo_backward",
                "  def forward(self, x, g): return g * 7\n",
                [two],
                [lambda x, _: [x[1] * 7]],
            ),
        )
        x = torch.ones(4, requires_grad=True)
        package.Foo(recompute=True)(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.full((4,), 3.0))
        y = package.FooBackward()(torch.ones(4), torch.ones(4))
        torch.testing.assert_close(y, torch.full((4,), 7.0))

    def test_second_copy_is_the_first(self) -> None:
        work = workload([form([4])], [made(0, [4])], X)
        body = "  def forward(self, x): return x * 3\n"
        first = self.package("copied", task("copied", body, [work], [lambda x, _: [x[0] * 3]]))
        shutil.copytree(self.folder / "copied", self.folder / "again")
        second = importlib.import_module("again")
        second.Copied()(torch.ones(5))
        self.assertEqual(second.stats()["copied"]["fallback"], 1)
        self.assertIs(second.package, first.package)

    def test_changed_modules_fall_back(self) -> None:
        body = "  def __init__(self):\n    super().__init__()\n"
        body += "    self.part = torch.nn.Linear(4, 4)\n    self.dims = (0, 1)\n"
        body += "    self.kind = torch.float32\n    self.more = None\n"
        body += "  def forward(self, x): return self.part(x)\n"
        work = workload([form([2, 4])], [made(0, [2, 4])], X)
        more = {"state": [form([4, 4]), form([4])], "weights": [0, 1]}
        launches: list[Launch] = [lambda x, w: [torch.nn.functional.linear(x[0], *w)]]
        package = self.package("changes", task("dense", body, [work], launches, **more))

        class Other(torch.nn.Linear):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) * 2

        changes = {
            "dims": (1, 0),
            "kind": torch.float64,
            "more": 3,
            "part": Other(4, 4),
        }
        x = torch.randn(2, 4)
        with torch.no_grad():
            torch.testing.assert_close(*[m(x) for m in [package.Dense(on_mismatch="raise")] * 2])
            for name, value in changes.items():
                model = package.Dense()
                setattr(model, name, value)
                model(x)
                reasons = package.stats()["dense"]["reasons"]
                self.assertEqual(reasons.get(f"attribute {name} of the module"), 1, reasons)
        model = package.Dense()
        model.part = torch.nn.Identity()
        torch.testing.assert_close(model(x), x)
        # A layer takes whatever module it is put into.
        found = package.package.tasks["dense"]
        _, _, why = found.mismatch(model, ["part.weight", "part.bias"], (x,))
        self.assertEqual(why, "the module has another state_dict")

    def test_elements_of_attributes_are_compared(self) -> None:
        body = "  def __init__(self):\n    super().__init__()\n"
        body += "    self.pads, self.table = [0, [1.0]], {'a': [2], 'b': (3,)}\n"
        body += "  def forward(self, x):\n"
        body += "    return x * (self.pads[0] + self.pads[1][0] + self.table['a'][0])\n"
        work = workload([form([4])], [made(0, [4])], X)
        package = self.package("lists", task("lists", body, [work], [lambda x, _: [x[0] * 3]]))
        x = torch.ones(4)
        judged = package.Lists(on_mismatch="raise")
        compiled = torch.compile(judged, fullgraph=True, backend="eager")
        torch.testing.assert_close([judged(x), compiled(x)], [x * 3] * 2)
        changes: list[tuple[str, Callable[[Any], Any]]] = [
            ("pads", lambda model: model.pads.__setitem__(0, 5)),
            ("pads", lambda model: model.pads[1].append(5.0)),
            ("pads", lambda model: model.pads[1].__setitem__(0, 1)),
            ("table", lambda model: model.table["a"].__setitem__(0, 5)),
            ("table", lambda model: model.table.update(c=1)),
            ("table", lambda model: model.table.update(a=model.table.pop("a"))),
        ]
        for count, (name, change) in enumerate(changes, 1):
            model = package.Lists()
            change(model)
            wanted = x * (model.pads[0] + model.pads[1][0] + model.table["a"][0])
            torch.testing.assert_close(model(x), wanted)
            stats = package.stats()["lists"]
            self.assertEqual(stats["fallback"], count, stats)
            self.assertIn(f"attribute {name} of the module", stats["reasons"])

    def test_first_call_of_a_layer_compiles_whole(self) -> None:
        body = "  def __init__(self):\n    super().__init__()\n    self.scale = 3\n"
        body += "  def forward(self, x): return x * self.scale\n"
        work = workload([form([4])], [made(0, [4])], X)
        package = self.package("first", task("first", body, [work], [lambda x, _: [x[0] * 3]]))
        found = package.package.tasks["first"]
        loads: list[Any] = []
        found.checked = False
        found.operator.workloads[0].load = loads.append
        model = package.package.layers().First()
        model.scale = 3
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        x = torch.ones(4)
        torch.testing.assert_close([compiled(x), compiled(x)], [x * 3] * 2)
        self.assertEqual((len(loads), found.checked), (1, True))
        self.assertEqual(package.stats()["first"]["reasons"], {})
        torch.testing.assert_close(compiled(torch.ones(5)), torch.full((5,), 3.0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
