// The recording as JSON, in the form of crates/plan/src/recording.rs, but for what Python knows: weights,
// inputs and outputs.
#include "recorder.h"

namespace recorder {
namespace {

// Appends JSON; commas come by themselves.
class Writer {
  public:
    Writer& key(const char* name) {
        value_begins();
        quoted(name);
        text_ += ':';
        fresh_ = true;
        return *this;
    }
    template <class Body>
    void object(Body body) {
        nested('{', '}', body);
    }
    template <class Items, class Each>
    void list(const Items& items, Each each) {
        nested('[', ']', [&] {
            for (const auto& item : items) each(item);
        });
    }
    void number(uint64_t value) { raw(std::to_string(value)); }
    void integer(int64_t value) { raw(std::to_string(value)); }
    void boolean(bool value) { raw(value ? "true" : "false"); }
    void null() { raw("null"); }
    void string(const std::string& value) {
        value_begins();
        quoted(value);
    }
    void hex(const std::string& bytes) {
        static const char digits[] = "0123456789abcdef";
        value_begins();
        text_ += '"';
        for (const char c : bytes) {
            text_ += digits[static_cast<uint8_t>(c) >> 4];
            text_ += digits[static_cast<uint8_t>(c) & 15];
        }
        text_ += '"';
    }
    std::string& text() { return text_; }

  private:
    void value_begins() {
        if (!fresh_) text_ += ',';
        fresh_ = false;
    }
    void raw(const std::string& value) {
        value_begins();
        text_ += value;
    }
    template <class Body>
    void nested(char open, char close, Body body) {
        value_begins();
        text_ += open;
        fresh_ = true;
        body();
        text_ += close;
        fresh_ = false;
    }
    void quoted(const std::string& value) {
        text_ += '"';
        for (const char c : value) {
            if (c == '"' || c == '\\') text_ += '\\';
            text_ += static_cast<uint8_t>(c) < 0x20 || static_cast<uint8_t>(c) >= 0x7f ? '?' : c;
        }
        text_ += '"';
    }
    std::string text_;
    bool fresh_ = true;
};

const char* name_of(Phase phase) {
    static const char* const names[] = {"idle", "init", "prepare", "inputs", "first", "second"};
    return names[static_cast<int>(phase)];
}

void numbers(Writer& w, const char* key, const std::vector<uint64_t>& values) {
    w.key(key).list(values, [&](uint64_t v) { w.number(v); });
}
void numbers(Writer& w, const char* key, const std::vector<uint32_t>& values) {
    w.key(key).list(values, [&](uint32_t v) { w.number(v); });
}
template <class T, size_t N>
void integers(Writer& w, const char* key, const T (&values)[N]) {
    w.key(key).list(values, [&](T v) { w.integer(static_cast<int64_t>(v)); });
}
void extent(Writer& w, dim3 e) { w.list(std::vector<uint32_t>{e.x, e.y, e.z}, [&](uint32_t v) { w.number(v); }); }

template <class T>
void optional_integer(Writer& w, const char* key, const std::optional<T>& value) {
    w.key(key);
    if (value)
        w.integer(static_cast<int64_t>(*value));
    else
        w.null();
}

void place(Writer& w, const char* key, const Place& place) {
    w.key(key).object([&] {
        if (!place.variable) {
            w.key("address").number(place.address);
            return;
        }
        w.key("symbol").object([&] {
            w.key("module").number(*place.variable->module->index);
            w.key("name").string(place.variable->name);
            w.key("offset").number(place.address);
        });
    });
}

void scalar(Writer& w, const char* key, const Scalar& scalar) {
    w.key(key).object([&] {
        w.key(scalar.type);
        if (scalar.is_signed)
            w.integer(scalar.bits);
        else
            w.number(static_cast<uint64_t>(scalar.bits));
    });
}

void fields(Writer& w, const Launch& launch) {
    w.key("kernel").number(launch.kernel);
    w.key("grid");
    extent(w, launch.grid);
    w.key("block");
    extent(w, launch.block);
    w.key("shared").number(launch.shared);
    w.key("cluster");
    if (launch.cluster)
        extent(w, *launch.cluster);
    else
        w.null();
    w.key("cooperative").boolean(launch.cooperative);
    w.key("programmatic").boolean(launch.programmatic);
    w.key("args").list(launch.args, [&](const std::string& bytes) { w.hex(bytes); });
}

void fields(Writer& w, const Fill& fill) {
    place(w, "to", fill.to);
    w.key("value").number(fill.value);
    w.key("element").number(fill.element);
    w.key("width").number(fill.width);
    w.key("height").number(fill.height);
    w.key("pitch").number(fill.pitch);
}

void fields(Writer& w, const Copy& copy) {
    place(w, "to", copy.to);
    place(w, "from", copy.from);
    w.key("width").number(copy.width);
    w.key("height").number(copy.height);
    w.key("to_pitch").number(copy.to_pitch);
    w.key("from_pitch").number(copy.from_pitch);
}

void fields(Writer& w, const Upload& upload) {
    place(w, "to", upload.to);
    w.key("bytes").hex(upload.bytes);
}

void fields(Writer& w, const Gemm& gemm) {
    integers(w, "transpose", gemm.transpose);
    integers(w, "sizes", gemm.sizes);
    integers(w, "operands", gemm.operands);
    integers(w, "types", gemm.types);
    integers(w, "leading", gemm.leading);
    integers(w, "strides", gemm.strides);
    w.key("batch").number(gemm.batch);
    scalar(w, "alpha", gemm.alpha);
    scalar(w, "beta", gemm.beta);
    w.key("compute").number(gemm.compute);
    w.key("math").number(gemm.math);
    w.key("algorithm").integer(gemm.algorithm);
    w.key("pointers").boolean(gemm.pointers);
}

void fields(Writer& w, const Gemv& gemv) {
    w.key("transpose").integer(gemv.transpose);
    integers(w, "sizes", gemv.sizes);
    integers(w, "operands", gemv.operands);
    w.key("dtype").number(gemv.dtype);
    w.key("leading").integer(gemv.leading);
    integers(w, "steps", gemv.steps);
    integers(w, "strides", gemv.strides);
    w.key("batch").number(gemv.batch);
    scalar(w, "alpha", gemv.alpha);
    scalar(w, "beta", gemv.beta);
    w.key("math").number(gemv.math);
}

void fields(Writer& w, const Matmul& matmul) {
    integers(w, "transpose", matmul.transpose);
    w.key("matrices").list(matmul.matrices, [&](const LtMatrix& m) {
        w.object([&] {
            w.key("at").number(m.at);
            w.key("dtype").number(m.dtype);
            integers(w, "sizes", m.sizes);
            w.key("leading").integer(m.leading);
            w.key("row_major").boolean(m.row_major);
            w.key("batch").number(m.batch);
            w.key("stride").integer(m.stride);
        });
    });
    scalar(w, "alpha", matmul.alpha);
    scalar(w, "beta", matmul.beta);
    w.key("compute").number(matmul.compute);
    w.key("epilogue").number(matmul.epilogue);
    optional_integer(w, "bias", matmul.bias);
}

void tensor(Writer& w, const char* key, const DnnTensor& tensor) {
    w.key(key).object([&] {
        w.key("at").number(tensor.at);
        w.key("dtype").number(tensor.dtype);
        numbers(w, "dims", tensor.dims);
        numbers(w, "strides", tensor.strides);
    });
}

void epilogue(Writer& w, const DnnEpilogue& epilogue) {
    w.object([&] {
        tensor(w, "bias", epilogue.bias);
        optional_integer(w, "residual", epilogue.residual);
        w.key("activation").number(epilogue.activation);
    });
}

void fields(Writer& w, const Convolution& convolution) {
    w.key("transposed").boolean(convolution.transposed);
    tensor(w, "source", convolution.source);
    w.key("filter").object([&] {
        w.key("at").number(convolution.filter.at);
        w.key("dtype").number(convolution.filter.dtype);
        w.key("format").number(convolution.filter.format);
        numbers(w, "dims", convolution.filter.dims);
    });
    tensor(w, "result", convolution.result);
    numbers(w, "padding", convolution.padding);
    numbers(w, "steps", convolution.steps);
    numbers(w, "dilation", convolution.dilation);
    w.key("groups").number(convolution.groups);
    w.key("mode").number(convolution.mode);
    w.key("compute").number(convolution.compute);
    w.key("math").number(convolution.math);
    scalar(w, "alpha", convolution.alpha);
    scalar(w, "beta", convolution.beta);
    optional_integer(w, "algorithm", convolution.algorithm);
    w.key("epilogue");
    if (convolution.epilogue)
        epilogue(w, *convolution.epilogue);
    else
        w.null();
}

void node(Writer& w, const Node& node) {
    static const char* const names[] = {"launch", "fill",        "copy", "upload",
                                        "gemm",   "convolution", "gemv", "matmul"};
    w.object([&] {
        w.key("phase").string(name_of(node.phase));
        w.key("stream").number(node.stream);
        numbers(w, "after", node.after);
        w.key("op").object([&] {
            w.key(names[node.operation.index()]).object([&] {
                std::visit([&](const auto& operation) { fields(w, operation); }, node.operation);
            });
        });
    });
}

void block(Writer& w, const Block& block) {
    w.object([&] {
        w.key("address").number(block.address);
        w.key("bytes").number(block.bytes);
        w.key("phase").string(name_of(block.phase));
        w.key("open").boolean(block.open);
        w.key("born").number(block.born);
        w.key("freed");
        if (!block.freed) return w.null();
        w.list(std::vector<int>{0, 1}, [&](int i) {
            if (i)
                w.number(block.freed->second);
            else
                w.string(name_of(block.freed->first));
        });
    });
}

void kernel(Writer& w, const Function& function) {
    w.object([&] {
        w.key("module").number(*function.module->index);
        w.key("name").string(function.name);
        optional_integer(w, "max_dynamic_shared", function.max_dynamic_shared);
        optional_integer(w, "shared_carveout", function.shared_carveout);
        w.key("nonportable_cluster").boolean(function.nonportable_cluster);
    });
}

void module(Writer& w, const Module& module) {
    w.object([&] {
        w.key("library").string(module.library);
        w.key("address").number(module.address);
    });
}

void tensor_map(Writer& w, const TensorMap& map) {
    w.object([&] {
        w.key("dtype").number(map.dtype);
        w.key("address").number(map.address);
        numbers(w, "dims", map.dims);
        numbers(w, "strides", map.strides);
        numbers(w, "box_dims", map.box_dims);
        numbers(w, "element_strides", map.element_strides);
        w.key("interleave").number(map.interleave);
        w.key("swizzle").number(map.swizzle);
        w.key("l2_promotion").number(map.l2_promotion);
        w.key("oob_fill").number(map.oob_fill);
    });
}

}  // namespace

std::string written() {
    Writer w;
    w.object([&] {
        w.key("version").number(1);
        w.key("modules").list(used_modules(), [&](const Module* m) { module(w, *m); });
        w.key("kernels").list(used_functions(), [&](const Function* f) { kernel(w, *f); });
        w.key("tensor_maps").list(tensor_maps(), [&](const TensorMap& m) { tensor_map(w, m); });
        w.key("blocks").list(blocks(), [&](const Block& b) { block(w, b); });
        w.key("nodes").list(nodes(), [&](const Node& n) { node(w, n); });
        numbers(w, "joined", joined_at_end());
    });
    return std::move(w.text());
}

}  // namespace recorder

extern "C" const char* recorder_written() {
    static std::string text;
    text = recorder::written();
    return text.c_str();
}
