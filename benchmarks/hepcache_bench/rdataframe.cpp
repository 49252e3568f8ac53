// examples/hh_bbll.py for ROOT's RDataFrame: the same selection, and the same numbers.
//
// Momenta are added in single precision, by the formulas of scikit-hep's vector, because events
// near a bin's edge would be counted on its other side otherwise.

#include <ROOT/RDFHelpers.hxx>
#include <ROOT/RDataFrame.hxx>
#include <ROOT/RVec.hxx>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace hh_bbll {

using ROOT::RVec;
using ROOT::RVecB;
using ROOT::RVecF;
using ROOT::RVecI;

struct Momentum {
  float x, y, z, t;
};

struct Particle {
  float pt, eta, phi, mass;
  int charge, flavour;
  float btag;
};

using Particles = std::vector<Particle>;

Momentum momentum_of(const Particle &particle) {
  const float exponential = std::exp(-particle.eta);
  const float by_sine = 0.5f * (1 + exponential * exponential) / exponential;
  const float squared = std::copysign(particle.mass * particle.mass, particle.mass) +
                        particle.pt * particle.pt * (by_sine * by_sine);
  return {particle.pt * std::cos(particle.phi), particle.pt * std::sin(particle.phi),
          particle.pt * std::sinh(particle.eta), std::sqrt(std::max(squared, 0.0f))};
}

Momentum sum_of(const Momentum &first, const Momentum &second) {
  return {first.x + second.x, first.y + second.y, first.z + second.z, first.t + second.t};
}

float mass_of(const Momentum &sum) {
  const float squared = sum.t * sum.t - (sum.x * sum.x + sum.y * sum.y + sum.z * sum.z);
  return std::copysign(std::sqrt(std::abs(squared)), squared);
}

float pt_of(const Momentum &sum) { return std::sqrt(sum.x * sum.x + sum.y * sum.y); }

float distance(const Particle &first, const Particle &second) {
  const float pi = static_cast<float>(M_PI), circle = static_cast<float>(2 * M_PI);
  float turned = std::fmod(first.phi - second.phi + pi, circle);
  if (turned < 0)
    turned += circle;
  const float phi = turned - pi, eta = first.eta - second.eta;
  return std::sqrt(phi * phi + eta * eta);
}

void sort_by_pt(Particles &particles) {
  std::stable_sort(particles.begin(), particles.end(),
                   [](const Particle &first, const Particle &second) {
                     return first.pt > second.pt;
                   });
}

Particles electrons_of(const RVecF &pt, const RVecF &eta, const RVecF &phi, const RVecF &mass,
                       const RVecI &charge, const RVec<UChar_t> &cut_based, const RVecF &dxy,
                       const RVecF &dz, const RVecF &isolation) {
  Particles found;
  for (std::size_t i = 0; i < pt.size(); ++i)
    if (pt[i] > 15 && std::abs(eta[i]) < 2.5f && cut_based[i] >= 2 &&
        std::abs(dxy[i]) < 0.05f && std::abs(dz[i]) < 0.1f && isolation[i] < 0.15f)
      found.push_back({pt[i], eta[i], phi[i], mass[i], charge[i], 11, 0});
  return found;
}

Particles muons_of(const RVecF &pt, const RVecF &eta, const RVecF &phi, const RVecF &mass,
                   const RVecI &charge, const RVecB &medium, const RVecF &dxy, const RVecF &dz,
                   const RVecF &isolation) {
  Particles found;
  for (std::size_t i = 0; i < pt.size(); ++i)
    if (pt[i] > 15 && std::abs(eta[i]) < 2.4f && medium[i] && std::abs(dxy[i]) < 0.05f &&
        std::abs(dz[i]) < 0.1f && isolation[i] < 0.2f)
      found.push_back({pt[i], eta[i], phi[i], mass[i], charge[i], 13, 0});
  return found;
}

Particles leptons_of(const Particles &electrons, const Particles &muons) {
  Particles found = electrons;
  found.insert(found.end(), muons.begin(), muons.end());
  sort_by_pt(found);
  return found;
}

Particles b_jets_of(const RVecF &pt, const RVecF &eta, const RVecF &phi, const RVecF &mass,
                    const RVecF &btag, const Particles &leptons) {
  Particles found;
  for (std::size_t i = 0; i < pt.size(); ++i) {
    if (!(pt[i] > 25 && std::abs(eta[i]) < 2.5f && btag[i] > 0.5f))
      continue;
    const Particle jet{pt[i], eta[i], phi[i], mass[i], 0, 0, btag[i]};
    if (std::all_of(leptons.begin(), leptons.end(), [&jet](const Particle &lepton) {
          return distance(jet, lepton) > 0.4f;
        }))
      found.push_back(jet);
  }
  sort_by_pt(found);
  return found;
}

struct Axis {
  std::string name;
  int bins;
  double low, high;
};

struct Output {
  unsigned long long events;
  double sum_of_weights;
  std::vector<unsigned long long> cutflow;
  // Of each axis: sums of weights, then of their squares, by channel and bin with both flows.
  std::vector<std::vector<double>> histograms;
};

// Process files of several datasets in one pass, as many at a time as ROOT has threads.
std::vector<Output> process(const std::vector<std::vector<std::string>> &datasets,
                            const std::vector<Axis> &axes) {
  using ROOT::RDF::RResultPtr;
  struct Booked {
    RResultPtr<ULong64_t> events;
    RResultPtr<double> sum_of_weights;
    std::vector<RResultPtr<ULong64_t>> cutflow;
    std::vector<RResultPtr<TH2D>> histograms;
  };
  std::vector<Booked> booked;
  std::vector<ROOT::RDF::RResultHandle> handles;
  for (const auto &files : datasets) {
    ROOT::RDataFrame frame("Events", files);
    auto leptons =
        frame
            .Define("weight",
                    [](float weight) { return weight > 0 ? 1.0 : weight < 0 ? -1.0 : 0.0; },
                    {"genWeight"})
            .Define("electrons", electrons_of,
                    {"Electron_pt", "Electron_eta", "Electron_phi", "Electron_mass",
                     "Electron_charge", "Electron_cutBased", "Electron_dxy", "Electron_dz",
                     "Electron_pfRelIso03_all"})
            .Define("muons", muons_of,
                    {"Muon_pt", "Muon_eta", "Muon_phi", "Muon_mass", "Muon_charge",
                     "Muon_mediumId", "Muon_dxy", "Muon_dz", "Muon_pfRelIso04_all"})
            .Define("leptons", leptons_of, {"electrons", "muons"})
            .Define("m_ll",
                    [](const Particles &found) {
                      return found.size() < 2 ? 0.0f
                                              : mass_of(sum_of(momentum_of(found[0]),
                                                               momentum_of(found[1])));
                    },
                    {"leptons"});
    auto two = leptons.Filter([](const Particles &found) { return found.size() == 2; },
                              {"leptons"});
    auto opposite = two.Filter(
        [](const Particles &found) { return found[0].charge + found[1].charge == 0; },
        {"leptons"});
    auto hard = opposite.Filter([](const Particles &found) { return found[0].pt > 25; },
                                {"leptons"});
    auto off_resonance = hard.Filter(
        [](float mass) { return mass > 12 && std::abs(double(mass) - 91.2) > 10; }, {"m_ll"});
    auto two_b = off_resonance
                     .Define("b_jets", b_jets_of,
                             {"Jet_pt", "Jet_eta", "Jet_phi", "Jet_mass", "Jet_btagPNetB",
                              "leptons"})
                     .Filter([](const Particles &found) { return found.size() >= 2; },
                             {"b_jets"});
    auto missing = two_b.Filter([](float pt) { return pt > 20; }, {"PuppiMET_pt"});
    auto bb = [](const Particles &found) {
      return sum_of(momentum_of(found[0]), momentum_of(found[1]));
    };
    auto chosen =
        missing.Define("bb", bb, {"b_jets"})
            .Define("ll", bb, {"leptons"})
            .Define("channel",
                    [](const Particles &found) {
                      const int flavours = found[0].flavour + found[1].flavour;
                      return flavours == 24 ? 2 : flavours == 22 ? 0 : 1;
                    },
                    {"leptons"})
            .Define("m_bb", mass_of, {"bb"})
            .Define("pt_bb", pt_of, {"bb"})
            .Define("dr_ll",
                    [](const Particles &found) { return distance(found[0], found[1]); },
                    {"leptons"})
            .Define("m_bbll",
                    [](const Momentum &first, const Momentum &second) {
                      return mass_of(sum_of(first, second));
                    },
                    {"bb", "ll"})
            .Alias("met", "PuppiMET_pt");
    Booked dataset{leptons.Count(), leptons.Sum<double>("weight"), {}, {}};
    for (auto count : {two.Count(), opposite.Count(), hard.Count(), off_resonance.Count(),
                       two_b.Count(), missing.Count()})
      dataset.cutflow.push_back(count);
    for (const auto &axis : axes)
      dataset.histograms.push_back(chosen.Histo2D<int, float, double>(
          {axis.name.c_str(), "", 3, 0, 3, axis.bins, axis.low, axis.high}, "channel", axis.name,
          "weight"));
    handles.emplace_back(dataset.events);
    booked.push_back(dataset);
  }
  ROOT::RDF::RunGraphs(handles);
  std::vector<Output> outputs;
  for (auto &dataset : booked) {
    Output output{*dataset.events, *dataset.sum_of_weights, {}, {}};
    for (auto &count : dataset.cutflow)
      output.cutflow.push_back(*count);
    for (auto &histogram : dataset.histograms) {
      std::vector<double> values, variances;
      for (int channel = 1; channel <= 3; ++channel)
        for (int bin = 0; bin <= histogram->GetNbinsY() + 1; ++bin) {
          values.push_back(histogram->GetBinContent(channel, bin));
          const double error = histogram->GetBinError(channel, bin);
          variances.push_back(std::round(error * error));
        }
      values.insert(values.end(), variances.begin(), variances.end());
      output.histograms.push_back(values);
    }
    outputs.push_back(output);
  }
  return outputs;
}

} // namespace hh_bbll
