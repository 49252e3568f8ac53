"""Run by ROOT's Python: one field of each kind that ROOT can write, and what ROOT reads of it.

python kinds.py write FILE VALUES    writes FILE, and what was filled in as VALUES
python kinds.py read FILE VALUES     reads FILE, in VALUES

VALUES is JSON: for each field its C++ type and a value for each entry. Classes are objects with
their bases' members, pairs and tuples are lists; floats have all their digits.
"""

import os
import sys
from pathlib import Path

import ROOT

ROOT.gInterpreter.Declare(r"""
#include <ROOT/RField.hxx>
#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleReader.hxx>
#include <ROOT/RNTupleWriteOptions.hxx>
#include <ROOT/RNTupleWriter.hxx>
#include <array>
#include <atomic>
#include <bitset>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>

enum Charge { kNegative = -1, kNeutral = 0, kPositive = 1 };
enum class Quality : std::uint8_t { bad = 1, good = 200 };
struct Point { float x = 0; double y = 0; };
struct Nothing {};
struct Hit : public Point { std::int16_t layer = 0; std::vector<float> charges; };
struct Track { Hit first; std::vector<Hit> hits; std::string name; float covariance[3] = {}; };
struct Both : public Point, public Nothing { Quality quality = Quality::bad; };

std::mt19937_64 draw{7};

template <typename T, typename = void> struct Kind {
   static void fill(T &value) {
      if constexpr (std::is_same_v<T, bool>) value = draw() & 1;
      else if constexpr (std::is_floating_point_v<T>)
         value = std::uniform_real_distribution<T>(-9, 9)(draw);
      else value = static_cast<T>(draw());
   }
   static void write(std::ostream &out, const T &value) {
      if constexpr (std::is_floating_point_v<T>) {
         char text[40];
         std::snprintf(text, sizeof text, "%.17g", static_cast<double>(value));
         out << text;
      } else if constexpr (std::is_same_v<T, bool>) out << (value ? "true" : "false");
      else if constexpr (std::is_same_v<T, std::uint64_t>) out << value;
      else out << static_cast<std::int64_t>(value);
   }
};
template <typename T> void fill(T &value) { Kind<T>::fill(value); }
template <typename T> void write(std::ostream &out, const T &value) { Kind<T>::write(out, value); }

template <typename... T> void write_all(std::ostream &out, const T &...values) {
   const char *comma = "[";
   ((out << comma, write(out, values), comma = ","), ...);
   out << (sizeof...(values) ? "]" : "[]");
}
template <typename C> void write_items(std::ostream &out, const C &values) {
   out << '[';
   bool first = true;
   for (auto &&value : values) {
      if (!first) out << ',';
      first = false;
      write(out, static_cast<const typename C::value_type &>(value));
   }
   out << ']';
}
template <typename C> void fill_items(C &values, int most = 4) {
   values.clear();
   for (auto i = draw() % most; i > 0; --i) {
      typename C::value_type value{};
      fill(value);
      values.push_back(std::move(value));
   }
}
template <> struct Kind<Charge> {
   static void fill(Charge &value) { value = static_cast<Charge>(int(draw() % 3) - 1); }
   static void write(std::ostream &out, Charge value) { out << int(value); }
};
template <> struct Kind<Quality> {
   static void fill(Quality &value) { value = draw() & 1 ? Quality::good : Quality::bad; }
   static void write(std::ostream &out, Quality value) { out << int(value); }
};
template <> struct Kind<std::string> {
   static void fill(std::string &value) {
      static const char *texts[] = {"", "µ and ντ", "plain", "a longer text than the others"};
      value = texts[draw() % 4];
   }
   static void write(std::ostream &out, const std::string &value) { out << '"' << value << '"'; }
};
template <typename T> struct Kind<std::vector<T>> {
   static void fill(std::vector<T> &value) { fill_items(value); }
   static void write(std::ostream &out, const std::vector<T> &value) {
      if constexpr (std::is_same_v<T, bool>) {
         const char *comma = "[";
         for (bool one : value) { out << comma; ::write(out, one); comma = ","; }
         out << (value.empty() ? "[]" : "]");
      } else write_items(out, value);
   }
};
template <typename T> struct Kind<ROOT::RVec<T>> {
   static void fill(ROOT::RVec<T> &value) { fill_items(value); }
   static void write(std::ostream &out, const ROOT::RVec<T> &value) { write_items(out, value); }
};
template <typename C> struct Ordered {
   static void fill(C &value) {
      std::vector<typename C::value_type> items;
      fill_items(items, 6);
      value = C(items.begin(), items.end());
   }
   static void write(std::ostream &out, const C &value) { write_items(out, value); }
};
template <typename C> struct Mapped {
   static void fill(C &value) {
      value.clear();
      for (auto i = draw() % 6; i > 0; --i) {
         typename C::key_type key{};
         typename C::mapped_type mapped{};
         ::fill(key);
         ::fill(mapped);
         value.emplace(key, mapped);
      }
   }
   static void write(std::ostream &out, const C &value) {
      const char *comma = "[";
      for (auto &&[key, mapped] : value) {
         out << comma;
         write_all(out, key, mapped);
         comma = ",";
      }
      out << (value.empty() ? "[]" : "]");
   }
};
template <typename T> struct Kind<std::set<T>> : Ordered<std::set<T>> {};
template <typename T> struct Kind<std::multiset<T>> : Ordered<std::multiset<T>> {};
template <typename T> struct Kind<std::unordered_set<T>> : Ordered<std::unordered_set<T>> {};
template <typename T> struct Kind<std::unordered_multiset<T>>
   : Ordered<std::unordered_multiset<T>> {};
template <typename K, typename V> struct Kind<std::map<K, V>> : Mapped<std::map<K, V>> {};
template <typename K, typename V> struct Kind<std::multimap<K, V>>
   : Mapped<std::multimap<K, V>> {};
template <typename K, typename V> struct Kind<std::unordered_map<K, V>>
   : Mapped<std::unordered_map<K, V>> {};
template <typename K, typename V> struct Kind<std::unordered_multimap<K, V>>
   : Mapped<std::unordered_multimap<K, V>> {};
template <typename T, std::size_t N> struct Kind<std::array<T, N>> {
   static void fill(std::array<T, N> &value) { for (auto &one : value) ::fill(one); }
   static void write(std::ostream &out, const std::array<T, N> &value) { write_items(out, value); }
};
template <std::size_t N> struct Kind<std::bitset<N>> {
   static void fill(std::bitset<N> &value) {
      for (std::size_t i = 0; i < N; ++i) value[i] = draw() & 1;
   }
   static void write(std::ostream &out, const std::bitset<N> &value) {
      for (std::size_t i = 0; i < N; ++i) out << (i ? "," : "[") << (value[i] ? "true" : "false");
      out << ']';
   }
};
template <typename A, typename B> struct Kind<std::pair<A, B>> {
   static void fill(std::pair<A, B> &value) { ::fill(value.first); ::fill(value.second); }
   static void write(std::ostream &out, const std::pair<A, B> &value) {
      write_all(out, value.first, value.second);
   }
};
template <typename... T> struct Kind<std::tuple<T...>> {
   static void fill(std::tuple<T...> &value) {
      std::apply([](auto &...one) { (::fill(one), ...); }, value);
   }
   static void write(std::ostream &out, const std::tuple<T...> &value) {
      std::apply([&](const auto &...one) { write_all(out, one...); }, value);
   }
};
template <typename... T> struct Kind<std::variant<T...>> {
   static void fill(std::variant<T...> &value) {
      auto tag = draw() % sizeof...(T), i = std::size_t(0);
      ((i++ == tag ? ::fill(value.template emplace<T>()) : void()), ...);
   }
   static void write(std::ostream &out, const std::variant<T...> &value) {
      std::visit([&](const auto &one) { ::write(out, one); }, value);
   }
};
template <typename T> struct Kind<std::optional<T>> {
   static void fill(std::optional<T> &value) {
      value.reset();
      if (draw() % 3) ::fill(value.emplace());
   }
   static void write(std::ostream &out, const std::optional<T> &value) {
      if (value) ::write(out, *value); else out << "null";
   }
};
template <typename T> struct Kind<std::unique_ptr<T>> {
   static void fill(std::unique_ptr<T> &value) {
      value.reset();
      if (draw() % 3) { value = std::make_unique<T>(); ::fill(*value); }
   }
   static void write(std::ostream &out, const std::unique_ptr<T> &value) {
      if (value) ::write(out, *value); else out << "null";
   }
};
template <typename T> struct Kind<std::atomic<T>> {
   static void fill(std::atomic<T> &value) { T one{}; ::fill(one); value = one; }
   static void write(std::ostream &out, const std::atomic<T> &value) {
      ::write(out, value.load());
   }
};
template <typename T> struct Kind<ROOT::RNTupleCardinality<T>> {
   static void write(std::ostream &out, const ROOT::RNTupleCardinality<T> &value) {
      out << static_cast<std::uint64_t>(value.fValue);
   }
};
// What a class has beside its bases' members; the file has them in one record.
void write_members(std::ostream &) {}
template <typename T, typename... Rest>
void write_members(std::ostream &out, const char *name, const T &value, const Rest &...rest) {
   out << '"' << name << "\":";
   write(out, value);
   if (sizeof...(rest)) out << ',';
   write_members(out, rest...);
}
template <typename... Members> void write_class(std::ostream &out, const Members &...members) {
   out << '{';
   write_members(out, members...);
   out << '}';
}
template <> struct Kind<Nothing> {
   static void fill(Nothing &) {}
   static void write(std::ostream &out, const Nothing &) { out << "{}"; }
};
template <> struct Kind<Point> {
   static void fill(Point &value) { ::fill(value.x); ::fill(value.y); }
   static void write(std::ostream &out, const Point &value) {
      write_class(out, "x", value.x, "y", value.y);
   }
};
template <> struct Kind<Hit> {
   static void fill(Hit &value) {
      ::fill<Point>(value); ::fill(value.layer); ::fill(value.charges);
   }
   static void write(std::ostream &out, const Hit &value) {
      write_class(out, "x", value.x, "y", value.y, "layer", value.layer, "charges", value.charges);
   }
};
template <> struct Kind<Track> {
   static void fill(Track &value) {
      ::fill(value.first); ::fill(value.hits); ::fill(value.name);
      for (auto &one : value.covariance) ::fill(one);
   }
   static void write(std::ostream &out, const Track &value) {
      std::array<float, 3> covariance;
      std::copy(value.covariance, value.covariance + 3, covariance.begin());
      write_class(out, "first", value.first, "hits", value.hits, "name", value.name,
                  "covariance", covariance);
   }
};
template <> struct Kind<Both> {
   static void fill(Both &value) { ::fill<Point>(value); ::fill(value.quality); }
   static void write(std::ostream &out, const Both &value) {
      write_class(out, "x", value.x, "y", value.y, "quality", value.quality);
   }
};

template <> struct Kind<TNamed> {
   static void fill(TNamed &value) {
      std::string title;
      ::fill(title);
      value.SetTitle(title.c_str());
   }
   static void write(std::ostream &out, const TNamed &value) {
      write_class(out, "title", std::string(value.GetTitle()));
   }
};

using ROOT::ENTupleColumnType;
struct Values {
   std::map<std::string, std::string> types;
   std::map<std::string, std::ostringstream> values;
   template <typename T> void add(const std::string &name, const T &value) {
      auto &out = values[name];
      out << (out.tellp() ? "," : "[");
      write(out, value);
   }
   void save(const std::string &path) {
      std::ofstream out(path);
      out << '{';
      const char *comma = "";
      for (auto &[name, found] : values) {
         out << comma << '"' << name << "\": [\"" << types[name] << "\", " << found.str() << "]]";
         comma = ",\n";
      }
      out << '}';
   }
};
struct Writer {
   std::unique_ptr<ROOT::RNTupleModel> model = ROOT::RNTupleModel::Create();
   Values seen;
   std::vector<std::function<void()>> fills;
   template <typename T, typename F> void add(const std::string &name, F &&change) {
      auto field = std::make_unique<ROOT::RField<T>>(name);
      change(*field);
      seen.types[name] = field->GetTypeName();
      model->AddField(std::move(field));
      auto value = model->GetDefaultEntry().template GetPtr<T>(name);
      fills.push_back([this, name, value] { fill(*value); seen.add(name, *value); });
   }
   template <typename T> void add_late(ROOT::RNTupleModel::RUpdater &updater, const char *name) {
      auto value = updater.MakeField<T>(name);
      fills.push_back([this, name, value] { fill(*value); seen.add(name, *value); });
   }
   void add_streamed(const std::string &name) {
      model->AddField(std::make_unique<ROOT::RStreamerField>(name, "TNamed"));
      auto value = model->GetDefaultEntry().GetPtr<TNamed>(name);
      seen.types[name] = "TNamed";
      fills.push_back([this, name, value] { fill(*value); seen.add(name, *value); });
   }
};
""") or sys.exit("ROOT does not compile what fills and writes values")

# What a field is called: its type, and what is done to it.
KINDS: dict[str, tuple[str, str]] = {
    name: (kind, "")
    for name, kind in {
        "flag": "bool", "letter": "char", "raw": "std::byte",
        "int8": "std::int8_t", "uint8": "std::uint8_t",
        "int16": "std::int16_t", "uint16": "std::uint16_t",
        "int32": "std::int32_t", "uint32": "std::uint32_t",
        "int64": "std::int64_t", "uint64": "std::uint64_t",
        "float32": "float", "float64": "double", "text": "std::string",
        "vector": "std::vector<float>", "flags": "std::vector<bool>",
        "texts": "std::vector<std::string>", "bytes": "std::vector<std::byte>",
        "nested": "std::vector<std::vector<std::vector<std::int32_t>>>",
        "rvec": "ROOT::RVec<std::int32_t>", "rvecs": "ROOT::RVec<ROOT::RVec<float>>",
        "array": "std::array<float, 3>", "arrays": "std::array<std::array<std::int8_t, 2>, 3>",
        "array_of_flags": "std::array<bool, 5>",
        "array_of_vectors": "std::array<std::vector<float>, 2>",
        "array_of_texts": "std::array<std::string, 2>",
        "pair": "std::pair<std::int32_t, float>",
        "tuple": "std::tuple<std::uint8_t, double, std::string>",
        "variant": "std::variant<float, std::int32_t>",
        "variant_of_three": "std::variant<std::string, std::vector<float>, bool>",
        "variant_in_vector": "std::vector<std::variant<double, std::string>>",
        "optional": "std::optional<double>", "optional_text": "std::optional<std::string>",
        "optional_vector": "std::optional<std::vector<float>>",
        "vector_of_optional": "std::vector<std::optional<std::int32_t>>",
        "pointer": "std::unique_ptr<float>", "pointer_to_class": "std::unique_ptr<Point>",
        "set": "std::set<std::int32_t>", "multiset": "std::multiset<std::uint8_t>",
        "unordered_set": "std::unordered_set<std::int64_t>",
        "unordered_multiset": "std::unordered_multiset<std::uint8_t>",
        "map": "std::map<std::int32_t, float>",
        "map_of_vectors": "std::map<std::string, std::vector<float>>",
        "multimap": "std::multimap<std::uint8_t, double>",
        "unordered_map": "std::unordered_map<std::int32_t, std::string>",
        "unordered_multimap": "std::unordered_multimap<std::uint8_t, float>",
        "bits": "std::bitset<21>", "many_bits": "std::bitset<130>",
        "vector_of_bits": "std::vector<std::bitset<5>>",
        "enumeration": "Charge", "enumeration_class": "Quality",
        "vector_of_enumeration": "std::vector<Quality>",
        "atomic": "std::atomic<std::int32_t>", "atomic_flag": "std::atomic<bool>",
        "class": "Point", "empty_class": "Nothing", "derived_class": "Hit",
        "two_bases": "Both", "class_of_classes": "Track", "vector_of_class": "std::vector<Hit>",
        "array_of_class": "std::array<Point, 2>", "optional_class": "std::optional<Point>",
        "rvec_of_class": "ROOT::RVec<Point>",
        "variant_of_classes": "std::variant<Point, Hit>",
        "pair_of_classes": "std::pair<Point, std::vector<Hit>>",
    }.items()
}  # fmt: skip
COLUMNS = "field.SetColumnRepresentatives({{ENTupleColumnType::k%s}});"
KINDS |= {
    "half": ("float", COLUMNS % "Real16"),
    "truncated": ("float", "field.SetTruncated(17);"),
    "quantized": ("float", "field.SetQuantized(14, {-9, 9});"),
    "half_double": ("double", COLUMNS % "Real16"),
    "truncated_double": ("double", "field.SetTruncated(20);"),
    "quantized_double": ("double", "field.SetQuantized(24, {-9, 9});"),
    "small_double": (
        "double",
        "field.SetColumnRepresentatives({{ENTupleColumnType::kSplitReal32}});",
    ),
}
PROJECTED = {
    "cardinality32": ("ROOT::RNTupleCardinality<std::uint32_t>", {"cardinality32": "vector"}),
    "cardinality64": (
        "ROOT::RNTupleCardinality<std::uint64_t>",
        {"cardinality64": "vector_of_class"},
    ),
    "projected": ("float", {"projected": "float32"}),
    "projected_collection": (
        "std::vector<std::int16_t>",
        {"projected_collection": "vector_of_class",
         "projected_collection._0": "vector_of_class._0.layer"},
    ),
}  # fmt: skip

# Fields that come in the middle of the second cluster.
LATE = {
    f"late_{name}": KINDS[name][0]
    for name in (
        "flag", "text", "vector", "array_of_vectors", "tuple", "variant", "variant_of_three",
        "variant_in_vector", "optional", "pointer_to_class", "set", "bits", "atomic", "class",
        "derived_class", "two_bases",
    )
}  # fmt: skip
# What ROOT streams whole, with nothing of it in columns of their own.
STREAMED = "streamed"

what, file, values = sys.argv[1], *(Path(path).resolve() for path in sys.argv[2:])
# ROOT has these collections only with a dictionary, which it compiles in the working directory.
os.chdir(values.parent)
collections = [kind for kind, _ in KINDS.values() if kind.startswith(("std::m", "std::unordered"))]
headers = "map;set;unordered_map;unordered_set;string;vector"
if not ROOT.gInterpreter.GenerateDictionary(";".join(collections), headers):
    sys.exit("ROOT makes no dictionary for maps and sets")
lines = []
if what == "write":
    lines += [
        "Writer w;",
        *(f'w.add<{kind}>("{name}", [](auto &field) {{ {change} }});'
          for name, (kind, change) in KINDS.items()),
    ]  # fmt: skip
    for name, (kind, sources) in PROJECTED.items():
        table = ", ".join(f'{{"{field}", "{source}"}}' for field, source in sources.items())
        lines.append(
            f"{{ std::unordered_map<std::string, std::string> from{{{table}}};"
            f'w.model->AddProjectedField(ROOT::RFieldBase::Create("{name}", "{kind}").Unwrap(),'
            "[from](const std::string &field) { return from.at(field); }); }"
        )
    lines.append(f'w.add_streamed("{STREAMED}");')
    late = "".join(f'w.add_late<{kind}>(*updater, "{name}");' for name, kind in LATE.items())
    lines.append(f"""
   ROOT::RNTupleWriteOptions options;
   options.SetCompression(505);
   options.SetInitialUnzippedPageSize(64);
   options.SetMaxUnzippedPageSize(1024);
   auto writer = ROOT::RNTupleWriter::Recreate(std::move(w.model), "Events", "{file}", options);
   for (int i = 0; i < 600; ++i) {{
      for (auto &fill : w.fills) fill();
      writer->Fill();
      if (i == 250) writer->CommitCluster();
      if (i == 320) {{
         auto updater = writer->CreateModelUpdater();
         updater->BeginUpdate();
         {late}
         updater->CommitUpdate();
      }}
      if (i == 450) writer->CommitCluster();
   }}
   writer.reset();
   w.seen.save("{values}");""")
else:
    lines.append(f'auto reader = ROOT::RNTupleReader::Open("Events", "{file}"); Values seen;')
    every = {name: kind for name, (kind, _) in (KINDS | PROJECTED).items()} | LATE
    reader = ROOT.RNTupleReader.Open("Events", str(file))
    there = {
        str(field.GetFieldName()): str(field.GetTypeName())
        for field in reader.GetDescriptor().GetTopLevelFields()
    }
    if set(there) != {*every, STREAMED}:
        sys.exit(f"fields differ: {set(there) ^ set(every)}")
    lines.append(f"""
   seen.types["{STREAMED}"] = "TNamed";
   auto streamed = reader->GetModel().GetDefaultEntry().GetPtr<TNamed>("{STREAMED}");
   for (auto i : reader->GetEntryRange()) {{
      reader->LoadEntry(i);
      seen.add("{STREAMED}", *streamed);
   }}""")
    for name, kind in every.items():
        lines.append(
            f'{{ auto view = reader->GetView<{kind}>("{name}");'
            f' seen.types["{name}"] = "{there[name]}";'
            f' for (auto i : reader->GetEntryRange()) seen.add<{kind}>("{name}", view(i)); }}'
        )
    lines.append(f'seen.save("{values}");')
ROOT.gInterpreter.Declare("void run() {\n" + "\n".join(lines) + "\n}") or sys.exit(
    "ROOT does not compile these kinds of fields"
)
ROOT.run()
