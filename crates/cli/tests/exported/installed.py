"""Tests of installed packages; `exporting.rs` exports and installs them."""

import copy
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from pathlib import Path
from typing import Any

import add_relu
import linear
import rms_norm
import scale
import torch
from torch.multiprocessing.reductions import StorageWeakRef

warnings.simplefilter("ignore")


def inputs(package: Any, workload: int = 0) -> list[torch.Tensor]:
    (task,) = package.package.tasks.values()
    return [torch.randn(form["shape"]) for form in task.spec["workloads"][workload]["inputs"]]


def weights(package: Any, model: torch.nn.Module) -> list[torch.Tensor]:
    (task,) = package.package.tasks.values()
    names = list(model.state_dict())
    return [dict(model.named_parameters())[names[at]] for at in task.spec["weights"]]


def counted(package: Any) -> dict[str, Any]:
    (found,) = package.stats().values()
    return found


def expected(model: torch.nn.Module, *args: torch.Tensor) -> Any:
    """What the reference computes."""
    return type(model).__mro__[1].forward(model, *args)


def close(made: Any, wanted: Any) -> None:
    """Sums in another order."""
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-4)


def _native(package: Any, workload: Any) -> Any:
    native = importlib.import_module(f"{package.__name__}._native")
    return native.Code(package.package.files, workload.spec["folder"])


def _cannot_load(images: list[bytes], as_files: bool) -> Any:
    raise importlib.import_module("add_relu._native").UnavailableError("no driver")


CASES = [(add_relu, add_relu.AddRelu, 0), (linear, linear.Linear, 0)]
CASES += [(rms_norm, rms_norm.RmsNorm, 0), (rms_norm, rms_norm.RmsNorm, 1)]


class Installed(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(1)

    def test_modules_compute_what_the_reference_does(self) -> None:
        for package, kind, workload in CASES:
            model, args = kind(), inputs(package, workload)
            before = counted(package)["kernel"]
            with torch.no_grad():
                close(model(*args), expected(model, *args))
            self.assertEqual(counted(package)["kernel"], before + 1)
            (task,) = package.package.tasks.values()
            reference = task.operator.template()
            self.assertEqual(list(reference.state_dict()), list(model.state_dict()))
            model.load_state_dict(reference.state_dict(), strict=True)

    def test_operators_pass_opcheck(self) -> None:
        for package, kind, workload in CASES:
            (task,) = package.package.tasks.values()
            operator, model = task.operator.call.default, kind()
            given = [*inputs(package, workload), *weights(package, model)]
            torch.library.opcheck(operator, tuple(tensor.detach() for tensor in given))
            wanted = tuple(tensor.detach().requires_grad_() for tensor in given)
            torch.library.opcheck(operator, wanted, {"recompute": True})

    def test_modules_compile_to_one_graph_and_export(self) -> None:
        for package, kind, workload in CASES[1:3]:
            model, args = kind(), inputs(package, workload)
            compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
            with torch.no_grad():
                close(compiled(*args), expected(model, *args))
            # Gradients are traced, though nothing asks for them.
            close(compiled(*args), expected(model, *args))
            program = torch.export.export(model, tuple(args))
            called = [str(node.target) for node in program.graph.nodes]
            self.assertTrue(any(name.startswith("warpwright_") for name in called), called)
            close(program.module()(*args), expected(model, *args))
        model, args = add_relu.AddRelu(), inputs(add_relu)
        compiled = torch.compile(model, fullgraph=True)
        close(compiled(*args), expected(model, *args))

    def test_gradients_are_an_error_unless_they_are_recomputed(self) -> None:
        for package, kind, workload in CASES:
            args = [tensor.requires_grad_() for tensor in inputs(package, workload)]
            model = kind()
            result = model(*args)
            loss = (
                result.sum() if isinstance(result, torch.Tensor) else sum(r.sum() for r in result)
            )
            with self.assertRaisesRegex(RuntimeError, "recompute=True"):
                loss.backward()
            model = kind(recompute=True)
            wanted = [*args, *model.parameters()]
            found = []
            for forward in (model, lambda *args, model=model: expected(model, *args)):
                result = forward(*args)
                results = [result] if isinstance(result, torch.Tensor) else result
                loss = sum((r * r).sum() for r in results)
                found.append(torch.autograd.grad(loss, wanted))
            torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)

    def test_a_judged_step_is_the_backward_pass(self) -> None:
        model, x = scale.Scale(on_mismatch="raise"), torch.randn(24, 64, requires_grad=True)
        wanted = [x, model.weight]
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        before = counted(scale)["kernel"]
        for forward in (model, compiled):
            y = forward(x)
            close(y, x * x * model.weight)
            made = torch.autograd.grad((y * y).sum(), wanted)
            y = x * x * model.weight
            close(made, torch.autograd.grad((y * y).sum(), wanted))
        self.assertEqual(counted(scale)["kernel"], before + 4)
        (task,) = scale.package.tasks.values()
        given = (torch.randn(24, 64, requires_grad=True), model.weight)
        torch.library.opcheck(task.step.call.default, given)
        fallback = scale.Scale()
        loss = fallback(torch.randn(5, 64)).sum()
        loss.backward()
        self.assertIsNotNone(fallback.weight.grad)

    def test_what_was_not_judged_falls_back_and_is_counted(self) -> None:
        model, (x,) = rms_norm.RmsNorm(), inputs(rms_norm)
        calls = {
            "shape of the inputs": [torch.randn(5, 256)],
            "dtype of the inputs": [x.double()],
            "strides of the inputs": [torch.randn(256, 4).t()],
        }
        with torch.no_grad():
            for why, args in calls.items():
                before = counted(rms_norm)
                close(model(*args), expected(model, *args))
                after = counted(rms_norm)
                self.assertEqual(after["kernel"], before["kernel"], why)
                self.assertEqual(after["reasons"][why], before["reasons"].get(why, 0) + 1)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                model(x)
            other = rms_norm.RmsNorm(256, 1e-3)
            close(other(x), expected(other, x))
            wide = copy.deepcopy(model).to(torch.float64)
            wide(x)
            named = model(x=x)
        close(named, expected(model, x))
        reasons = counted(rms_norm)["reasons"]
        for why in ("autocast", "arguments of the constructor", "dtype of the weights"):
            self.assertEqual(reasons[why], 1, reasons)
        strict = rms_norm.RmsNorm(on_mismatch="raise")
        with self.assertRaisesRegex(RuntimeError, "not judged for this call: shape of the inputs"):
            strict(torch.randn(5, 256))

    def test_a_fallback_is_said_once(self) -> None:
        model = add_relu.AddRelu()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                model(torch.randn(3), torch.randn(3))
        self.assertEqual([str(one.message)[-19:] for one in said], ["shape of the inputs"])

    def test_misaligned_inputs_are_copied(self) -> None:
        model, args = add_relu.AddRelu(), inputs(add_relu)
        shifted = torch.empty(args[0].numel() + 1)[1:].view(args[0].shape).copy_(args[0])
        before = counted(add_relu)
        close(model(shifted, args[1]), expected(model, *args))
        after = counted(add_relu)
        self.assertEqual(after["aligned"], before["aligned"] + 1)
        self.assertEqual(after["kernel"], before["kernel"] + 1)

    def test_weights_are_prepared_again_when_they_change(self) -> None:
        one, other, (x,) = linear.Linear(), linear.Linear(), inputs(linear)
        with torch.no_grad():
            for model in (one, other, one, other):
                close(model(x), expected(model, x))
            prepared = counted(linear)["prepared"]
            one(x)
            self.assertEqual(counted(linear)["prepared"], prepared, "unchanged")
            one.linear.weight.mul_(2)
            close(one(x), expected(one, x))
            self.assertEqual(counted(linear)["prepared"], prepared + 1)
            one.linear.weight = torch.nn.Parameter(torch.randn_like(one.linear.weight))
            close(one(x), expected(one, x))
            one.linear.weight.data.mul_(3)
            linear.invalidate()
            close(one(x), expected(one, x))

    def test_many_sets_of_weights_stay_prepared(self) -> None:
        models, (x,) = [linear.Linear() for _ in range(18)], inputs(linear)
        (workload,) = next(iter(linear.package.tasks.values())).operator.workloads
        with torch.no_grad():
            for model in models:
                model(x)
            prepared = counted(linear)["prepared"]
            for model in models:
                close(model(x), expected(model, x))
            self.assertEqual(counted(linear)["prepared"], prepared)
            with torch.inference_mode():
                models[0].linear.weight.add_(1)
            close(models[0](x), expected(models[0], x))
            self.assertEqual(counted(linear)["prepared"], prepared + 1)
            storages = [StorageWeakRef(one.linear.weight.untyped_storage()) for one in models]
            del models, model
            gc.collect()
            self.assertTrue(all(storage.expired() for storage in storages))
            last = linear.Linear()
            last(x)
        self.assertEqual(sum(not ready.expired() for ready in workload.ready.values()), 1)
        self.assertEqual(len(workload.ready), 1)

    def test_prepared_sets_of_captured_graphs_are_kept(self) -> None:
        (workload,) = next(iter(linear.package.tasks.values())).operator.workloads
        model, (x,) = linear.Linear(), inputs(linear)
        with torch.no_grad():
            model(x)
            (ready,) = [ready for ready in workload.ready.values() if not ready.expired()]
            ready.captured = True
            model.linear.weight.add_(1)
            model(x)
        self.assertTrue(any(kept is ready for kept in workload.kept))
        self.assertFalse(any(other is ready for other in workload.ready.values()))
        workload.kept.clear()

    def test_weights_in_inference_mode_are_never_stale(self) -> None:
        (task,) = linear.package.tasks.values()
        before = counted(linear)["reasons"].get("weights in inference mode", 0)
        with torch.inference_mode():
            model, (x,) = linear.Linear(), inputs(linear)
            for _ in range(2):
                close(model(x), expected(model, x))
                # The operator itself, as traced code calls it.
                close(task.operator.call(x, *weights(linear, model)), expected(model, x))
                model.linear.weight.mul_(2)
        reasons = counted(linear)["reasons"]
        self.assertEqual(reasons["weights in inference mode"], before + 2)

    def test_training_mode_changes_nothing_here(self) -> None:
        model, (x,) = linear.Linear().train(), inputs(linear)
        before = counted(linear)["kernel"]
        model(x)
        self.assertEqual(counted(linear)["kernel"], before + 1)

    def test_layers_replace_the_forward_of_a_module(self) -> None:
        (task,) = rms_norm.package.tasks.values()
        module, (x,) = task.operator.template(), inputs(rms_norm)
        layer = rms_norm.layers.RmsNorm
        self.assertEqual((layer.can_torch_compile, layer.has_backward), (True, True))
        before = counted(rms_norm)["kernel"]
        close(layer.forward(module, x), module(x))
        self.assertEqual(counted(rms_norm)["kernel"], before + 1)
        # A number that the plan holds as a constant.
        for changed in (module, rms_norm.RmsNorm()):
            changed.eps = 1.0
            forward = layer.forward if changed is module else type(changed).forward
            close(forward(changed, x), type(module).forward(changed, x))
        self.assertEqual(counted(rms_norm)["kernel"], before + 1)
        self.assertEqual(counted(rms_norm)["reasons"]["attribute eps of the module"], 2)

    def test_package_checks_itself(self) -> None:
        for name, workloads in (("rms_norm", 2), ("scale", 1)):
            command = [sys.executable, "-m", f"{name}.check", "--json", "--seed", "3"]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            checks = json.loads(ran.stdout)["checks"]
            self.assertEqual([row["result"] for row in checks], ["right"] * workloads)

    def test_check_finds_what_is_wrong(self) -> None:
        check = importlib.import_module("linear.check")
        one, nan, inf = torch.ones(8), float("nan"), float("inf")
        broken, huge = one.clone(), one.clone()
        broken[3], huge[3] = nan, inf

        def right(made: Any, wanted: Any, truth: Any = None) -> bool:
            error, most = check._compare(made, wanted, truth)
            return error <= most

        for truth in (None, one.double()):
            self.assertTrue(right(one, one, truth))
            self.assertTrue(right(one * (1 + 1e-7), one, truth))
            for wrong in (broken, huge, one * 1.001, one * 0, one[:4], one.double()):
                self.assertFalse(right(wrong, one, truth))
                # Also beside a tensor that is right, at either place.
                pair = None if truth is None else [truth, truth]
                self.assertFalse(right([wrong, one], [one, one], pair))
                self.assertFalse(right([one, wrong], [one, one], pair))
        self.assertTrue(right(broken, broken) and right(huge, huge))
        self.assertFalse(right(broken, huge))
        low = torch.randn(64).bfloat16()
        self.assertTrue(right(low * 1.01, low))
        self.assertFalse(right(low + 2, low))
        self.assertEqual(check._worst([(0.0, 1.0), (inf, 0.0), (0.0, 1.0)]), (inf, 0.0))

    def test_check_compares_inputs_that_calls_change(self) -> None:
        check = importlib.import_module("add_relu.check")
        (task,) = add_relu.package.tasks.values()

        class Model(torch.nn.Module):
            def forward(self, x: torch.Tensor, scale: dict[str, torch.Tensor]) -> None:
                x.mul_(scale["by"])

        class Idle(Model):
            warpwright_raises = False

            def forward(self, x: torch.Tensor, scale: dict[str, torch.Tensor]) -> None:
                pass

        class Right(Idle, Model):
            forward = Model.forward

        def get_inputs() -> dict[str, Any]:
            return {"scale": {"by": torch.full((4,), 2.0)}, "x": torch.randn(4)}

        reference = types.SimpleNamespace(Model=Model, get_inputs=get_inputs)
        files = types.SimpleNamespace(reference=lambda path: reference)
        for kind, result in ((Idle, "wrong"), (Right, "right")):
            package = types.SimpleNamespace(files=files, modules={"task": kind})
            fake = copy.copy(task)
            fake.operator = types.SimpleNamespace(template=Model)
            workload = task.operator.workloads[0]
            row = check._check(package, ("task", fake), (0, workload), 1)
            self.assertEqual(row["result"], result, row)

    def test_launch_code_was_built_with_the_wheel(self) -> None:
        for package in (add_relu, linear, rms_norm, scale):
            built = list((Path(package.__file__).parent / "_built").glob("*.so"))
            (task,) = package.package.tasks.values()
            self.assertEqual(len(built), len(task.spec["workloads"]))

    def copied(self, name: str) -> Path:
        """A copy of a package, which is imported as `name`."""
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        sys.path.insert(0, str(folder))
        self.addCleanup(sys.path.remove, str(folder))
        return Path(shutil.copytree(Path(add_relu.__file__).parent, folder / name))

    def test_changed_files_are_refused(self) -> None:
        same = self.copied("same")
        importlib.import_module("same")
        for path in ("images/0.bin", "launch.cpp", "reference.py"):
            name = f"changed_{path[:4].replace('/', '')}"
            file = self.copied(name) / "workloads" / "add_relu-0" / path
            file.write_bytes(file.read_bytes() + b"\n")
            with self.assertRaisesRegex(RuntimeError, "is not what was exported"):
                importlib.import_module(name)
        self.assertTrue(same.is_dir())

    def test_another_package_of_the_same_name_is_refused(self) -> None:
        folder = self.copied("impostor")
        file = folder / "workloads" / "add_relu-0" / "launch.cpp"
        file.write_bytes(file.read_bytes() + b"\n")
        manifest = json.loads((folder / "manifest.json").read_text())
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        manifest["sha256"]["workloads/add_relu-0/launch.cpp"] = digest
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with self.assertRaisesRegex(RuntimeError, "has registered others under this name"):
            importlib.import_module("impostor")

    def loaded(self, name: str, cache: Path) -> str:
        """What a copied package of another process says when its launch code comes from `cache`."""
        folder = self.copied(name)
        shutil.rmtree(folder / "_built", ignore_errors=True)
        program = (
            f"import torch, {name} as p\nm = p.AddRelu()\n"
            "(t,) = p.package.tasks.values()\nx = torch.randn(t.spec['workloads'][0]['inputs']"
            "[0]['shape'])\nm(x, x)\nprint(t.unavailable)"
        )
        given = {"PYTHONPATH": str(folder.parent), "WARPWRIGHT_PACKAGE_CACHE": str(cache)}
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout.strip()

    def test_launch_code_of_others_is_not_loaded(self) -> None:
        cache = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, cache)
        self.assertEqual(self.loaded("own", cache), "None")
        (code,) = cache.glob("*.so")
        # Not what was compiled: it is compiled again.
        code.write_bytes(b"other")
        self.assertEqual(self.loaded("torn", cache), "None")
        self.assertNotEqual(code.read_bytes(), b"other")
        cache.chmod(0o777)
        told = self.loaded("shared", cache)
        self.assertIn("others can write to", told)
        self.assertIn("WARPWRIGHT_PACKAGE_CACHE", told)
        # No folder: the reference computes.
        file = cache / "file"
        file.write_text("")
        self.assertIn("WARPWRIGHT_PACKAGE_CACHE", self.loaded("nowhere", file / "cache"))

    def test_compiled_bytecode_of_a_reference_is_not_run(self) -> None:
        folder = self.copied("cached")
        (spec,) = json.loads((folder / "package.json").read_text())["tasks"]
        source = folder / spec["workloads"][0]["folder"] / "reference.py"
        other = source.with_name("other.py")
        other.write_text(source.read_text() + "\nWRONG = True\n")
        target = importlib.util.cache_from_source(str(source))
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(other), cfile=target, invalidation_mode=mode)
        package = importlib.import_module("cached")
        path = f"{spec['workloads'][0]['folder']}/reference.py"
        files = package.package.files
        files.digest = "0" * 64
        self.assertFalse(hasattr(files.reference(path), "WRONG"))

    def test_kernels_that_cannot_be_loaded_fall_back(self) -> None:
        (task,) = add_relu.package.tasks.values()
        (workload,) = task.operator.workloads
        other, broken = copy.copy(task), copy.copy(workload)
        broken.opened, broken.ready = {}, {}
        broken.code = copy.copy(workload.code or _native(add_relu, workload))
        broken.code.open = _cannot_load
        other.operator = types.SimpleNamespace(workloads=[broken])
        other.checked = False
        other.check()
        self.assertIn("no driver", other.unavailable)

    def test_another_processor_falls_back(self) -> None:
        (task,) = add_relu.package.tasks.values()
        other = copy.copy(task)
        other.spec = {**task.spec, "processor": "another one"}
        other.checked = False
        other.check()
        self.assertIn("machine code for another one", other.unavailable)
        gpu = copy.copy(task)
        gpu.spec = {**task.spec, "device": "cuda", "arch": "sm_90a"}
        gpu.checked = False
        gpu.check()
        self.assertTrue(gpu.unavailable, "there is no GPU, or another one")


if __name__ == "__main__":
    unittest.main()
