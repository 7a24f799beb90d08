"""Tests of a package whose kernels are a GPU's: `exporting.rs` runs them with and without one."""

import sys
import unittest
import warnings

import rows
import torch
from rows import _native

warnings.simplefilter("ignore")
(TASK,) = rows.package.tasks.values()


def expected(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return type(model).__mro__[1].forward(model, x)


def kernels() -> int:
    return rows.stats()["rows"]["kernel"]


class AnyMachine(unittest.TestCase):
    def test_tensors_of_the_host_fall_back(self) -> None:
        model, x = rows.Rows(), torch.randn(4, 8)
        torch.testing.assert_close(model(x), expected(model, x))
        found = rows.stats()["rows"]
        self.assertEqual((found["kernel"], len(found["reasons"])), (0, 1), found)

    def test_launch_code_compiles_and_names_a_missing_driver(self) -> None:
        (workload,) = TASK.operator.workloads
        code = _native.Code(rows.package.files, workload.spec["folder"])
        if torch.cuda.is_available():
            return
        with self.assertRaisesRegex(_native.UnavailableError, "there is no CUDA driver"):
            code.open([b"image"], as_files=False)

    def test_fake_kernels_know_the_results(self) -> None:
        with torch._subclasses.FakeTensorMode():
            x, w, m = (torch.empty(form, device="cuda") for form in ([4, 8], [8], [2, 8]))
            y = TASK.operator.call(x, w, m)
        self.assertEqual((y.shape, y.stride(), y.device.type), ((4, 2), (2, 1), "cuda"))


class OnGpu(unittest.TestCase):
    def setUp(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        self.model = rows.Rows(on_mismatch="raise", recompute=True).cuda()
        self.x = torch.randn(4, 8, device="cuda")

    def test_kernel_computes_what_the_reference_does(self) -> None:
        before = kernels()
        with torch.no_grad():
            torch.testing.assert_close(self.model(self.x), expected(self.model, self.x))
        self.assertEqual(kernels(), before + 1)

    def test_operator_passes_opcheck(self) -> None:
        given = (self.x, self.model.w.detach(), self.model.m.detach())
        torch.library.opcheck(TASK.operator.call.default, given)

    def test_module_is_captured_in_a_graph(self) -> None:
        with torch.no_grad():
            self.model(self.x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = self.model(self.x)
            for _ in range(3):
                self.x.copy_(torch.randn_like(self.x))
                graph.replay()
                torch.testing.assert_close(y, expected(self.model, self.x))

    def test_unprepared_weights_cannot_be_captured(self) -> None:
        rows.invalidate()
        refused = self.assertRaisesRegex(RuntimeError, "once before the capture")
        with torch.no_grad(), refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
            self.model(self.x)
        torch.cuda.synchronize()

    def test_streams_and_changed_weights(self) -> None:
        with torch.no_grad():
            for _ in range(5):
                self.model.w.add_(1)
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    y = self.model(self.x)
                stream.synchronize()
                torch.testing.assert_close(y, expected(self.model, self.x))

    def test_module_compiles_with_reduced_overhead(self) -> None:
        compiled = torch.compile(self.model, fullgraph=True, mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(4):
                torch.testing.assert_close(compiled(self.x), expected(self.model, self.x))

    def test_gradients_are_recomputed(self) -> None:
        x = self.x.requires_grad_()
        for forward in (self.model, lambda x: expected(self.model, x)):
            made = torch.autograd.grad(forward(x).square().sum(), [x, *self.model.parameters()])
            self.assertTrue(all(grad is not None for grad in made))


if __name__ == "__main__":
    if "--gpu" not in sys.argv:
        del OnGpu
    else:
        sys.argv.remove("--gpu")
    unittest.main()
