"""Run by ROOT's Python: RNTuples as ROOT writes them.

python write.py OUT COMPRESSION PAGE_CHECKSUMS     fields of all kinds, in all encodings
python write.py OUT TREE_FILE TREE                 what ROOT makes of a TTree
"""

import sys

import ROOT

CODE = r"""
#include <ROOT/RField.hxx>
#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleWriteOptions.hxx>
#include <ROOT/RNTupleWriter.hxx>
#include <array>
#include <bitset>
#include <optional>
#include <functional>
#include <random>
#include <set>

using ROOT::ENTupleColumnType;

struct Filler {
   std::mt19937_64 draw{7};
   void fill(bool &value) { value = draw() & 1; }
   void fill(std::string &value) { value = "s" + std::to_string(draw() % 1000); }
   template <typename T>
   void fill(T &value) {
      if constexpr (std::is_floating_point_v<T>)
         value = std::uniform_real_distribution<T>(-9, 9)(draw);
      else
         value = static_cast<T>(draw());
   }
   template <typename T>
   void fill(std::vector<T> &value) {
      value.clear();
      for (auto i = draw() % 4; i > 0; --i) { T one{}; fill(one); value.push_back(one); }
   }
   template <typename T>
   void fill(ROOT::RVec<T> &value) { std::vector<T> v; fill(v); value = v; }
   template <typename T>
   void fill(std::set<T> &value) { std::vector<T> v; fill(v); value = {v.begin(), v.end()}; }
   template <typename T, std::size_t N>
   void fill(std::array<T, N> &value) { for (auto &one : value) fill(one); }
   template <std::size_t N>
   void fill(std::bitset<N> &value) { value = std::bitset<N>(draw()); }
   template <typename T>
   void fill(std::optional<T> &value) {
      value.reset();
      if (draw() % 3) { T one{}; fill(one); value = one; }
   }
   template <typename A, typename B>
   void fill(std::pair<A, B> &value) { fill(value.first); fill(value.second); }
};

struct Writer {
   std::unique_ptr<ROOT::RNTupleModel> model = ROOT::RNTupleModel::Create();
   std::vector<std::function<void(Filler &)>> fills;

   template <typename T, typename F>
   void add(const std::string &name, F &&change) {
      auto field = std::make_unique<ROOT::RField<T>>(name);
      change(*field);
      model->AddField(std::move(field));
      auto value = model->GetDefaultEntry().template GetPtr<T>(name);
      fills.push_back([value](Filler &filler) { filler.fill(*value); });
   }
   template <typename T>
   void add(const std::string &name) { add<T>(name, [](auto &) {}); }
   template <typename T>
   void as(const std::string &name, ENTupleColumnType type) {
      add<T>(name, [type](auto &field) { field.SetColumnRepresentatives({{type}}); });
   }
};

void write(const std::string &out, int compression, bool checksums) {
   Writer w;
   w.add<bool>("flag"); w.add<char>("letter"); w.add<std::byte>("raw");
   w.add<std::int8_t>("i8"); w.add<std::uint8_t>("u8");
   w.add<std::int16_t>("i16"); w.add<std::uint16_t>("u16");
   w.add<std::int32_t>("i32"); w.add<std::uint32_t>("u32");
   w.add<std::int64_t>("i64"); w.add<std::uint64_t>("u64");
   w.add<float>("f32"); w.add<double>("f64"); w.add<std::string>("text");
   w.as<std::int16_t>("plain_i16", ENTupleColumnType::kInt16);
   w.as<std::int32_t>("plain_i32", ENTupleColumnType::kInt32);
   w.as<std::int64_t>("plain_i64", ENTupleColumnType::kInt64);
   w.as<std::uint64_t>("plain_u64", ENTupleColumnType::kUInt64);
   w.as<std::int16_t>("split_i16", ENTupleColumnType::kSplitInt16);
   w.as<std::int32_t>("split_i32", ENTupleColumnType::kSplitInt32);
   w.as<std::int64_t>("split_i64", ENTupleColumnType::kSplitInt64);
   w.as<std::uint16_t>("split_u16", ENTupleColumnType::kSplitUInt16);
   w.as<std::uint32_t>("split_u32", ENTupleColumnType::kSplitUInt32);
   w.as<float>("plain_f32", ENTupleColumnType::kReal32);
   w.as<float>("split_f32", ENTupleColumnType::kSplitReal32);
   w.as<double>("plain_f64", ENTupleColumnType::kReal64);
   w.as<double>("split_f64", ENTupleColumnType::kSplitReal64);
   w.as<double>("f64_as_f32", ENTupleColumnType::kSplitReal32);
   w.as<float>("half", ENTupleColumnType::kReal16);
   w.as<double>("half_double", ENTupleColumnType::kReal16);
   for (int bits : {10, 13, 16, 24, 31}) {
      w.add<float>("truncated_" + std::to_string(bits), [&](auto &f) { f.SetTruncated(bits); });
      w.add<double>("truncated_double_" + std::to_string(bits),
                    [&](auto &f) { f.SetTruncated(bits); });
   }
   for (int bits : {1, 7, 16, 20, 32}) {
      w.add<float>("quantized_" + std::to_string(bits),
                   [&](auto &f) { f.SetQuantized(-9, 9, bits); });
      w.add<double>("quantized_double_" + std::to_string(bits),
                    [&](auto &f) { f.SetQuantized(-9, 9, bits); });
   }
   w.add<std::vector<float>>("list");
   w.as<std::vector<float>>("list_index32", ENTupleColumnType::kIndex32);
   w.as<std::vector<float>>("list_index64", ENTupleColumnType::kIndex64);
   w.as<std::vector<float>>("list_split32", ENTupleColumnType::kSplitIndex32);
   w.as<std::vector<float>>("list_split64", ENTupleColumnType::kSplitIndex64);
   w.add<std::vector<bool>>("flags"); w.add<std::vector<std::string>>("texts");
   w.add<std::vector<std::vector<double>>>("nested");
   w.add<ROOT::RVec<std::int32_t>>("rvec"); w.add<ROOT::RVec<ROOT::RVec<float>>>("rvecs");
   w.add<std::set<std::int32_t>>("set");
   w.add<std::array<double, 3>>("array"); w.add<std::array<std::array<float, 2>, 3>>("arrays");
   w.add<std::vector<std::array<std::int16_t, 2>>>("list_of_arrays");
   w.add<std::array<std::vector<float>, 2>>("array_of_lists");
   w.add<std::bitset<21>>("bits"); w.add<std::optional<float>>("maybe");
   w.add<std::optional<std::vector<float>>>("maybe_list");
   w.add<std::vector<std::optional<std::int32_t>>>("list_of_maybe");
   w.add<std::pair<std::int32_t, float>>("pair");
   w.add<std::vector<std::pair<double, std::vector<float>>>>("pairs");

   ROOT::RNTupleWriteOptions options;
   options.SetCompression(compression);
   options.SetEnablePageChecksums(checksums);
   options.SetInitialUnzippedPageSize(64);
   options.SetMaxUnzippedPageSize(1024);
   options.SetApproxZippedClusterSize(200'000);
   options.SetMaxUnzippedClusterSize(400'000);
   auto fills = w.fills;
   auto writer = ROOT::RNTupleWriter::Recreate(std::move(w.model), "Events", out, options);
   Filler filler;
   auto rows = [&](int count) {
      for (int i = 0; i < count; ++i) { for (auto &one : fills) one(filler); writer->Fill(); }
   };
   rows(1500);
   // Fields that come later: they have no pages before.
   auto updater = writer->CreateModelUpdater();
   updater->BeginUpdate();
   auto late = updater->MakeField<float>("late");
   auto lates = updater->MakeField<std::vector<std::int32_t>>("late_list");
   updater->CommitUpdate();
   fills.push_back([late](Filler &f) { f.fill(*late); });
   fills.push_back([lates](Filler &f) { f.fill(*lates); });
   rows(1500);
}
"""

out = sys.argv[1]
if sys.argv[2].isdecimal():
    ROOT.gInterpreter.Declare(CODE) or sys.exit("ROOT does not compile the writer")
    ROOT.write(out, int(sys.argv[2]), sys.argv[3] == "1")
else:
    importer = ROOT.Experimental.RNTupleImporter.Create(sys.argv[2], sys.argv[3], out)
    importer.SetIsQuiet(True)
    importer.Import()
